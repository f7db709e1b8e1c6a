"""Run the `makeway` command in forks of one process that has imported what commands need.

The imports of a command take most of a second of a core, and tests run hundreds. A fork has arguments,
environment, output and an end of its own, as the command has where a shell starts it.
"""

import asyncio
import atexit
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "200"}
"""What every command has in its environment."""

_IMPORTED = (
    "makeway.cli.main",
    "makeway.cli.connect.session",
    "makeway.cli.keys.command",
    "makeway.cli.mode.command",
    "makeway.cli.history.command",
    "kubernetes_asyncio",
    "typer._adapters",
    "typer.rich_utils",
)
_SECONDS = 60.0
_REQUEST_BYTES = 1 << 20


async def run_forked(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it wrote to standard output and standard error."""
    request = {"arguments": list(arguments), "environment": dict(environment)}
    return await asyncio.to_thread(_ask, json.dumps(request).encode())


def _ask(request: bytes) -> tuple[int, str, str]:
    out, err = os.memfd_create("out"), os.memfd_create("err")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(_server())
            socket.send_fds(connection, [request], [out, err])
            code = int(connection.recv(16))
        return code, _written(out), _written(err)
    finally:
        os.close(out)
        os.close(err)


def _written(file: int) -> str:
    return os.pread(file, os.fstat(file).st_size, 0).decode()


@functools.cache
def _server() -> bytes:
    """Start the process that forks, once; return its address."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind("")  # Linux chooses a name
    listening.listen(16)
    process = subprocess.Popen(
        [sys.executable, __file__, str(listening.fileno())],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        pass_fds=[listening.fileno()],
    )
    atexit.register(process.kill)
    address: bytes = listening.getsockname()
    listening.close()
    return address


def _serve(listening: socket.socket) -> None:
    """Fork for each connection until standard input ends; return in the fork that is to be the command."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            sys.exit()
        connection, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            return _become_command(connection)
        connection.close()


def _become_command(connection: socket.socket) -> None:
    """Fork once more: wait for the command and tell its exit code here, and return there."""
    request, files, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, 2)
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        connection.send(b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    connection.close()
    for file, target in zip([os.open(os.devnull, os.O_RDONLY), *files], range(3), strict=True):
        os.dup2(file, target)
        os.close(file)
    asked = json.loads(request)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv[1:] = asked["arguments"]


if __name__ == "__main__":
    # As for `python -c`: what lies beside this file is no part of the command.
    del sys.path[0]
    sys.argv[0] = "-c"
    _serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(importlib.import_module("makeway.cli.main").main())
