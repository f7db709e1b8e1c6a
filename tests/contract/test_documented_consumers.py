"""The consumers of examples/consumers, run as they are there."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from builders_bus import make_order, make_outcome
from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.streams.named_consumers import parsed, unread
from makeway.bus.subjects import Subjects
from makeway.dev.binaries import GO_ENVIRONMENT
from makeway.dev.nats import accounts as dev_accounts
from makeway.dev.nats_identities import DEVELOPER
from makeway.dev.nats_permissions import (
    ACCOUNT,
    consumer_permissions,
    permissions,
    server_accounts,
    server_permissions,
)
from makeway.dev.paths import CHECKOUT, PLUGIN_MODULE

pytestmark = pytest.mark.nats

SUBJECTS = Subjects()
AUDIT = parsed("audit=outcomes,orders")
PROGRAMS = CHECKOUT / "examples" / "consumers"


@asynccontextmanager
async def first_line(url: str, *command: str) -> AsyncIterator[str]:
    """Run a program for the length of a block; gives the first line that it prints."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=PLUGIN_MODULE, env={**os.environ, "NATS_URL": url}, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), 120)).decode()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def ended_order(server: NatsServer) -> AsyncIterator[tuple[Bus, str]]:
    """Have the streams, the consumer `audit`, and an order that ended; gives what a program prints of it."""
    bus = await Bus.connect(f"nats://admin:p@127.0.0.1:{server.port}", name="streams/test")
    await bus.ensure_streams(consumers=AUDIT)
    order = make_order("uid")
    await bus.publish_order(order, 0)
    outcome = make_outcome(order)
    await bus.publish_outcome(outcome)
    yield bus, f"{order.order_id} {outcome.result} {len(outcome.victims)} victims\n"
    await bus.close()


async def counted(bus: Bus, **expected: int) -> None:
    """Wait until the consumer `audit` has so many unread; nats-server counts a moment after it stores."""
    async with asyncio.timeout(10):
        while await unread(bus.jetstream, SUBJECTS) != {("audit", kind): n for kind, n in expected.items()}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.fixture
def accounts(nats_server: NatsServer) -> NatsServer:
    """A server with the chart's accounts, for the consumer `audit` too, and an administrator."""
    users: dict[str, dict[str, Any]] = {"admin": {"user": "admin", "password": "p"}}
    given = {**permissions(SUBJECTS), **{one.user: consumer_permissions(SUBJECTS, one) for one in AUDIT}}
    for name, one in given.items():
        users[name] = {"user": name, "password": "p", "permissions": server_permissions(one)}
    nats_server.extra = f"accounts: {json.dumps(server_accounts(SUBJECTS, users, AUDIT))}"
    nats_server.restart()
    return nats_server


@pytest.fixture
def developers(nats_server: NatsServer) -> NatsServer:
    """A server as `makeway dev up` has it: who gives no login is the developer."""
    accounts = dev_accounts(SUBJECTS, None)
    accounts[ACCOUNT]["users"].append({"user": "admin", "password": "p"})
    nats_server.extra = f"accounts: {json.dumps(accounts)}\nno_auth_user: {DEVELOPER}"
    nats_server.restart()
    return nats_server


@pytest.mark.parametrize("language", ["python", "go"])
async def test_a_consumer_of_ten_lines_with_the_viewers_login_tells_how_an_order_ended(
    accounts: NatsServer, tmp_path: Path, language: str
) -> None:
    url = f"nats://viewer:p@127.0.0.1:{accounts.port}"
    async with ended_order(accounts) as (_, said):
        if language == "python":
            command = [sys.executable, str(PROGRAMS / "follow.py")]
        else:
            # The executable is the process that is killed, where `go run` would leave its child behind.
            binary = str(tmp_path / "consumer")
            source = str(PROGRAMS / "follow.go")
            build = await asyncio.create_subprocess_exec(
                "go", "build", "-o", binary, source, cwd=PLUGIN_MODULE, env={**os.environ, **GO_ENVIRONMENT}
            )
            assert await build.wait() == 0
            command = [binary]
        async with first_line(url, *command) as line:
            assert line == said


async def test_the_named_consumers_program_fetches_with_its_login_and_acknowledges(
    accounts: NatsServer,
) -> None:
    url = f"nats://consumer-audit:p@127.0.0.1:{accounts.port}"
    async with ended_order(accounts) as (bus, said):
        await counted(bus, outcomes=1, orders=1)

        async with first_line(url, sys.executable, str(PROGRAMS / "audit.py")) as line:
            assert line == said
            await counted(bus, outcomes=0, orders=1)


@pytest.mark.parametrize("name", ["audit.py", "follow.py"])
async def test_both_python_programs_run_on_makeway_dev_up(developers: NatsServer, name: str) -> None:
    program = (sys.executable, str(PROGRAMS / name))
    async with ended_order(developers) as (_, said), first_line(developers.url, *program) as line:
        assert line == said
