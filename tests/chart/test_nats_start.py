"""How the chart starts NATS: once its passwords are there, and with new ones as soon as they change."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from makeway.dev.binaries import NATS_SERVER
from makeway.dev.build import ensure
from makeway.dev.paths import CHART
from makeway.dev.ports import Ports
from makeway.dev.progress import SilentProgress


@contextmanager
def started(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the script as a container would, with its directory in another place."""
    script = (CHART / "files" / "nats-start.sh").read_text().replace("/etc/nats", str(directory))
    (directory / "start.sh").write_text(script)
    (directory / "nats.conf").write_text(
        f"include passwords.conf\nlisten: 127.0.0.1:{port}\n"
        "authorization { users: [{ user: viewer, password: $VIEWER_PASSWORD }] }\n"
    )
    server = ensure([NATS_SERVER], SilentProgress())[NATS_SERVER.name]
    environment = {**os.environ, "PATH": f"{server.parent}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["/bin/sh", str(directory / "start.sh")],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


async def lets_in(port: int, password: str) -> bool:
    """Log in as the protocol has it: nats-py would go on trying where nothing listens yet."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        await reader.readline()
        login = json.dumps({"user": "viewer", "pass": password, "verbose": False, "pedantic": False})
        writer.write(f"CONNECT {login}\r\nPING\r\n".encode())
        return await asyncio.wait_for(reader.readline(), 5) == b"PONG\r\n"
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()


async def until_it_lets_in(port: int, password: str) -> None:
    async with asyncio.timeout(60):
        while not await lets_in(port, password):  # noqa: ASYNC110 - a server of another process
            await asyncio.sleep(0.2)


async def test_it_waits_for_the_passwords_and_reads_them_again(tmp_path: Path) -> None:
    ports = Ports()
    port = ports.take()
    passwords = tmp_path / "passwords.conf"
    try:
        with started(tmp_path, port) as process:
            await asyncio.sleep(0.5)
            assert process.poll() is None
            assert not await lets_in(port, "pone")

            passwords.write_text('VIEWER_PASSWORD: "pone"\n')
            await until_it_lets_in(port, "pone")
            passwords.write_text('VIEWER_PASSWORD: "ptwo"\n')
            await until_it_lets_in(port, "ptwo")

            assert not await lets_in(port, "pone")
            assert process.poll() is None
    finally:
        ports.release()
