"""A real nats-server with JetStream for tests; import the fixtures in a conftest."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from makeway.bus.client import Bus
from makeway.bus.nats.connection import ConnectionTimings
from makeway.dev.binaries import NATS_SERVER
from makeway.dev.build import ensure
from makeway.dev.ports import Ports
from makeway.dev.progress import ConsoleProgress

CONFIG = """
listen: {listen}:{port}
jetstream {{ store_dir: "{store}", max_memory_store: 64MB, max_file_store: 4GB }}
{extra}
"""

ConnectBus = Callable[..., Awaitable[Bus]]


class NatsServer:
    """One server on one port that can be stopped, killed, paused and started again on the same store."""

    def __init__(self, binary: Path, directory: Path, port: int) -> None:
        self.port = port
        self.listen = "127.0.0.1"
        self.extra = ""
        self._binary = binary
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Path:
        """Where JetStream keeps its streams."""
        return self._directory / "store"

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self._directory / "nats.conf"
        config.write_text(
            CONFIG.format(
                listen=self.listen, port=self.port, store=self._directory / "store", extra=self.extra
            )
        )
        with (self._directory / "nats.log").open("ab") as log:
            self._process = subprocess.Popen([self._binary, "-c", config], stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    if connection.recv(4) == b"INFO":
                        return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"nats-server did not start:\n{(self._directory / 'nats.log').read_text()}")

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def lose_everything(self) -> None:
        """Kill it and start it again with an empty store."""
        self.kill()
        shutil.rmtree(self._directory / "store")
        self.start()

    def pause(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def reload(self) -> None:
        """Have it read its configuration, and the files that it names, again."""
        assert self._process
        self._process.send_signal(signal.SIGHUP)

    def restart(self) -> None:
        self.kill()
        self.start()


@pytest.fixture(scope="session")
def nats_binary() -> Path:
    return ensure([NATS_SERVER], ConsoleProgress())[NATS_SERVER.name]


@pytest.fixture
def nats_server(nats_binary: Path, tmp_path: Path) -> Iterator[NatsServer]:
    ports = Ports()
    server = NatsServer(nats_binary, tmp_path, ports.take())
    server.start()
    yield server
    server.kill()
    ports.release()


@pytest_asyncio.fixture
async def connect_bus(nats_server: NatsServer) -> AsyncIterator[ConnectBus]:
    """Connects as often as it is called; closes all."""
    buses: list[Bus] = []

    async def connect(
        name: str = "test/one", timings: ConnectionTimings | None = None, **options: Any
    ) -> Bus:
        bus = await Bus.connect(nats_server.url, name=name, timings=timings, **options)
        buses.append(bus)
        return bus

    yield connect
    for bus in buses:
        await bus.close()


@pytest_asyncio.fixture
async def bus(connect_bus: ConnectBus) -> Bus:
    """A bus whose streams exist."""
    connected = await connect_bus()
    await connected.ensure_streams()
    return connected
