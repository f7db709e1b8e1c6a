"""The consumers of docs/consumers.md, run as they stand on the page."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from builders_bus import make_order, make_outcome
from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.permissions import permissions, server_accounts, server_permissions
from makeway.bus.subjects import Subjects
from makeway.dev.binaries import GO_ENVIRONMENT
from makeway.dev.paths import CHECKOUT, PLUGIN_MODULE

pytestmark = pytest.mark.nats


def program(language: str, directory: Path, suffix: str) -> Path:
    """The one program of a language on the page, in a file."""
    page = (CHECKOUT / "docs" / "consumers.md").read_text()
    (text,) = re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    path = directory / f"consumer{suffix}"
    path.write_text(text)
    return path


async def first_line(server: NatsServer, *command: str, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=PLUGIN_MODULE,
        env={**os.environ, **environment, "NATS_URL": f"nats://viewer:p@127.0.0.1:{server.port}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        return (await asyncio.wait_for(process.stdout.readline(), 120)).decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("language", ["python", "go"])
async def test_a_consumer_of_ten_lines_with_the_viewers_login_tells_how_an_order_ended(
    nats_server: NatsServer, tmp_path: Path, language: str
) -> None:
    users: dict[str, dict[str, Any]] = {"admin": {"user": "admin", "password": "p"}}
    for name, given in permissions(Subjects()).items():
        users[name] = {"user": name, "password": "p", "permissions": server_permissions(given)}
    nats_server.extra = f"accounts: {json.dumps(server_accounts(Subjects(), users))}"
    nats_server.restart()
    bus = await Bus.connect(f"nats://admin:p@127.0.0.1:{nats_server.port}", name="streams/test")
    await bus.ensure_streams()
    order = make_order("uid")
    await bus.publish_order(order, 0)
    outcome = make_outcome(order)
    await bus.publish_outcome(outcome)

    if language == "python":
        line = await first_line(nats_server, sys.executable, str(program("python", tmp_path, ".py")))
    else:
        # The executable is the process that is killed, where `go run` would leave its child behind.
        binary = str(tmp_path / "consumer")
        source = str(program("go", tmp_path, ".go"))
        build = await asyncio.create_subprocess_exec(
            "go", "build", "-o", binary, source, cwd=PLUGIN_MODULE, env={**os.environ, **GO_ENVIRONMENT}
        )
        assert await build.wait() == 0
        line = await first_line(nats_server, binary)

    assert line == f"{order.order_id} {outcome.result} {len(outcome.victims)} victims\n"
    await bus.close()
