"""Loopback ports that no other cluster of this machine takes, now or at a component's restart.

Ports below the kernel's range for outgoing connections are used: a port from inside that range may be taken
by any connection while its component is down. Each port is held by a lock on a file, which the kernel
releases when the owner dies, so two clusters never choose the same.
"""

import fcntl
import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import IO

from makeway.dev.errors import DevError
from makeway.dev.paths import port_directory

_FIRST, _LAST = 20000, 32000


class Ports:
    """The ports of one cluster; held until `release` or the end of the process."""

    def __init__(self) -> None:
        self._held: list[IO[str]] = []

    def take(self) -> int:
        """Choose a free port of 127.0.0.1 and hold it.

        Raises:
            DevError: none is free.
        """
        directory = port_directory()
        directory.mkdir(mode=0o700, exist_ok=True)
        for port in random.sample(range(_FIRST, _LAST), _LAST - _FIRST):
            if self._hold(directory / str(port), port):
                return port
        raise DevError(f"no port of 127.0.0.1 between {_FIRST} and {_LAST} is free")

    def release(self) -> None:
        """Release all ports."""
        for file in self._held:
            file.close()
        self._held.clear()

    def _hold(self, path: Path, port: int) -> bool:
        """Lock the port's file and see that nothing listens on it."""
        file = path.open("w")
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
            self._held.append(file)
            return True
        file.close()
        return False
