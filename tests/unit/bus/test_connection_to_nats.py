"""The connection: how it fails, how it says so, how it comes back; against a real nats-server."""

import asyncio
import inspect
import time
import tomllib
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from fixtures_nats import ConnectBus, NatsServer
from makeway.bus import metrics
from makeway.bus.client import Bus
from makeway.bus.errors import BusRefused, BusUnavailable, ConnectionLost
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.nats.login import Login
from makeway.bus.nats.tolerant import TolerantClient
from makeway.bus.nats.user_key import credentials_file

pytestmark = pytest.mark.nats

QUICK = ConnectionTimings(probe_interval=0.2, probe_timeout=0.3)


async def reconnected(bus: Bus) -> None:
    back = asyncio.Event()
    bus.connection.add_listener(back.set)
    await asyncio.wait_for(back.wait(), 15)


async def until_disconnected(bus: Bus) -> None:
    async with asyncio.timeout(15):
        while not bus.disconnected():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def test_a_server_that_is_not_there_is_named_in_the_error(nats_server: NatsServer) -> None:
    nats_server.kill()

    with pytest.raises(BusUnavailable, match=f"cannot connect to NATS at 127.0.0.1:{nats_server.port}"):
        await Bus.connect(nats_server.url, name="test/one", timings=ConnectionTimings(connect=0.5))


async def test_a_time_out_that_the_client_forgets_ends_the_attempt_all_the_same(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(_: Client) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:  # as wait_for of Python 3.11 does where the answer has just come
            raise ConnectionResetError("the server has closed it") from None

    monkeypatch.setattr(TolerantClient, "_process_connect_init", forgets)

    with pytest.raises(BusUnavailable, match="the server has closed it"):
        await Bus.connect(nats_server.url, name="test/one", timings=ConnectionTimings(connect=0.2))


async def test_a_password_in_the_url_is_not_in_the_error(nats_server: NatsServer) -> None:
    nats_server.kill()
    url = f"nats://user:secret@127.0.0.1:{nats_server.port}"

    with pytest.raises(BusUnavailable) as refused:
        await Bus.connect(url, name="test/one", timings=ConnectionTimings(connect=0.5))

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [("127.0.0.1:port", "invalid connect url"), ("nats://127.0.0.1:1,ws://127.0.0.1:1", "mixing")],
)
async def test_a_url_that_the_client_refuses_is_named(url: str, said: str) -> None:
    with pytest.raises(BusRefused, match=f"cannot connect to NATS at 127.0.0.1:.*{said}"):
        await Bus.connect(url, name="test/one")


async def test_wrong_credentials_end_the_attempt_with_the_servers_reason(nats_server: NatsServer) -> None:
    nats_server.extra = 'authorization { user: "a", password: "b" }'
    nats_server.restart()

    with pytest.raises(BusRefused, match=r"(?i)authorization violation"):
        async with asyncio.timeout(5):
            await Bus.connect(nats_server.url, name="test/one", timings=ConnectionTimings(connect=30))


async def test_unreadable_credentials_are_refused_at_once(nats_server: NatsServer, tmp_path: Path) -> None:
    with pytest.raises(BusRefused, match="cannot be used: no such file"):
        await Bus.connect(nats_server.url, name="test/one", login=credentials_file(tmp_path / "none"))


async def test_a_password_file_is_read_for_each_connection(nats_server: NatsServer, tmp_path: Path) -> None:
    def asks_for(password: str) -> str:
        return f'authorization {{ user: "a", password: "{password}" }}'

    nats_server.extra = asks_for("one")
    nats_server.restart()
    file = tmp_path / "password"
    file.write_text("one\n")
    bus = await Bus.connect(nats_server.url, name="test/one", login=Login("a", file))
    try:
        file.write_text("two\n")
        nats_server.extra = asks_for("two")
        again = asyncio.Event()
        bus.connection.add_listener(again.set)
        nats_server.restart()
        async with asyncio.timeout(20):
            await again.wait()
            await bus.connection.client.flush()
    finally:
        await bus.close()


async def test_a_password_file_that_goes_away_leaves_the_last_password(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")
    login = Login("a", file)
    file.unlink()

    assert login.password() == "one"


async def never(_: Msg) -> None:
    """Answer nothing."""


async def shout(request: bytes, _sender: str) -> bytes:
    """Answer in capitals."""
    return request.upper()


async def test_a_request_whose_answer_has_just_come_can_be_cancelled_still(connect_bus: ConnectBus) -> None:
    """As Python 3.11's asyncio.wait_for cannot: the task would go on."""
    bus = await connect_bus(timings=ConnectionTimings(probe_interval=600))  # the probe asks, too
    client = bus.connection.client
    await client.subscribe("slow", cb=never)
    asking = asyncio.create_task(client.request("slow", timeout=5))
    await asyncio.sleep(0.2)
    (waiting,) = client._resp_map.values()

    waiting.set_result(Msg(client))
    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_request_that_nobody_answers_in_time_says_so(bus: Bus) -> None:
    await bus.connection.client.subscribe("slow", cb=never)

    with pytest.raises(nats.errors.TimeoutError):
        await bus.connection.client.request("slow", timeout=0.1)


async def test_nobody_to_answer_a_plan_request_is_known_at_once(bus: Bus) -> None:
    started = time.perf_counter()

    with pytest.raises(BusUnavailable, match="none listens"):
        await bus.request_plan(b"{}", timeout_seconds=60)

    assert time.perf_counter() - started < 30


async def test_a_planner_answers_until_it_unsubscribes(bus: Bus, connect_bus: ConnectBus) -> None:
    asker = await connect_bus("test/asker")

    service = await bus.serve_plan(shout)
    assert await asker.request_plan(b"abc", timeout_seconds=2) == b"ABC"
    await service.unsubscribe()
    await bus.connection.round_trip()

    with pytest.raises(BusUnavailable, match="none listens"):
        await asker.request_plan(b"abc", timeout_seconds=2)


async def test_a_planner_that_is_busy_with_a_group_answers_about_pods(bus: Bus) -> None:
    planned = asyncio.Event()

    async def answer_at_length(request: bytes, _sender: str) -> bytes:
        await planned.wait()
        return request.upper()

    await bus.serve_group_plan(answer_at_length)
    await bus.serve_plan(shout)
    client = bus.connection.client
    asked = asyncio.create_task(client.request(bus.subjects.plan_group, b"group", timeout=5))
    assert await bus.request_plan(b"pod", timeout_seconds=2) == b"POD"
    planned.set()

    assert (await asked).data == b"GROUP"


async def test_a_question_that_waits_holds_up_no_other(bus: Bus) -> None:
    read = asyncio.Event()

    async def answer(request: bytes, _sender: str) -> bytes:
        if request == b"waits":
            await read.wait()
        return request

    for serve, subject in (
        (bus.serve_plan, bus.subjects.plan),
        (bus.serve_group_plan, bus.subjects.plan_group),
    ):
        await serve(answer)
        client = bus.connection.client
        waiting = asyncio.create_task(client.request(subject, b"waits", timeout=5))
        await asyncio.sleep(0.05)

        assert (await client.request(subject, b"next", timeout=2)).data == b"next"
        assert not waiting.done()
        read.set()
        assert (await waiting).data == b"waits"
        read.clear()


async def test_who_asks_is_one_for_each_connection(bus: Bus, connect_bus: ConnectBus) -> None:
    other = await connect_bus("test/other")

    async def answer(_: bytes, sender: str) -> bytes:
        return sender.encode()

    await bus.serve_plan(answer)
    first, again, others = [await one.request_plan(b"?", timeout_seconds=2) for one in (bus, bus, other)]

    assert first == again != others


async def test_a_planner_that_hangs_takes_no_request_from_another(bus: Bus, connect_bus: ConnectBus) -> None:
    other = await connect_bus("test/hung")

    async def hang(request: bytes, _sender: str) -> bytes:
        await asyncio.sleep(3600)
        return request

    await other.serve_plan(hang)
    await bus.serve_plan(shout)

    for _ in range(10):
        assert await bus.request_plan(b"abc", timeout_seconds=2) == b"ABC"


async def test_a_handler_that_fails_leaves_one_request_unanswered_and_serves_the_next(bus: Bus) -> None:
    async def answer(request: bytes, _sender: str) -> bytes:
        if request == b"bad":
            raise RuntimeError("no plan")
        return b"good"

    await bus.serve_plan(answer)
    with pytest.raises(BusUnavailable, match="no answer in time"):
        await bus.request_plan(b"bad", timeout_seconds=0.2)

    assert await bus.request_plan(b"fine", timeout_seconds=2) == b"good"


async def test_a_planner_answers_after_a_restart_of_the_server(bus: Bus, nats_server: NatsServer) -> None:
    await bus.serve_plan(shout)
    nats_server.kill()
    back = asyncio.create_task(reconnected(bus))
    await until_disconnected(bus)
    assert bus.healthy().startswith("no connection for")
    nats_server.start()
    await back

    assert bus.healthy() == ""
    assert await bus.request_plan(b"x", timeout_seconds=2) == b"X"


async def test_while_the_server_is_away_a_request_fails_at_once(bus: Bus, nats_server: NatsServer) -> None:
    nats_server.kill()
    await until_disconnected(bus)
    started = time.perf_counter()

    with pytest.raises(BusUnavailable, match="not connected"):
        await bus.request_plan(b"", timeout_seconds=60)

    assert time.perf_counter() - started < 30


async def test_the_probe_leaves_a_healthy_connection_alone(connect_bus: ConnectBus) -> None:
    bus = await connect_bus(timings=ConnectionTimings(probe_interval=0.1, probe_timeout=10))
    lost = asyncio.create_task(bus.until_lost())

    await asyncio.sleep(1)

    assert not lost.done()
    assert bus.healthy() == ""
    lost.cancel()


async def test_the_probe_is_answered_though_another_subscribes_to_every_subject(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    listener = await nats.connect(nats_server.url)
    await listener.subscribe(">")
    await listener.flush()
    bus = await connect_bus(timings=QUICK)
    lost = asyncio.create_task(bus.until_lost())

    await asyncio.sleep(1.5)

    assert not lost.done()
    assert bus.healthy() == ""
    lost.cancel()
    await listener.close()


async def test_a_probe_that_is_answered_late_ends_no_read_loop(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    bus = await connect_bus(timings=ConnectionTimings(probe_interval=600, probe_timeout=0.2))

    nats_server.pause()
    try:
        async with asyncio.timeout(10):
            while not await missed(bus):  # it may not have stopped yet
                pass
    finally:
        nats_server.resume()

    async with asyncio.timeout(10):
        while await missed(bus):
            pass
    task = bus.connection.client._reading_task
    assert task
    assert not task.done()


async def missed(bus: Bus) -> bool:
    try:
        await bus.connection.round_trip()
    except BusUnavailable:
        return True
    return False


async def test_a_dead_read_loop_on_a_standing_connection_ends_the_process(connect_bus: ConnectBus) -> None:
    bus = await connect_bus(timings=QUICK)
    task = bus.connection.client._reading_task
    assert task

    task.cancel()

    with pytest.raises(ConnectionLost, match="2 probes in a row were not answered"):
        await asyncio.wait_for(bus.until_lost(), 15)
    assert "2 probes" in bus.healthy()


async def test_a_server_that_hangs_ends_the_process(connect_bus: ConnectBus, nats_server: NatsServer) -> None:
    bus = await connect_bus(timings=QUICK)

    nats_server.pause()
    try:
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(bus.until_lost(), 15)
    finally:
        nats_server.resume()


async def test_a_server_that_has_left_the_cluster_is_tried_no_more(bus: Bus, nats_server: NatsServer) -> None:
    client, given = bus.connection.client, f"127.0.0.1:{nats_server.port}"

    async def told(**info: object) -> set[str]:
        await client._process_info(info)
        return {server.uri.netloc for server in client._server_pool}

    assert await told(connect_urls=["10.0.0.1:4222", "10.0.0.2:4222"]) == {
        given,
        "10.0.0.1:4222",
        "10.0.0.2:4222",
    }
    assert await told(connect_urls=["10.0.0.2:4222"]) == {given, "10.0.0.2:4222"}
    assert await told(ldm=False) == {given, "10.0.0.2:4222"}


HASTY = ConnectionTimings(probe_interval=0.1, probe_timeout=10, reconnect_limit=0.5)


async def test_a_server_that_is_down_beyond_the_limit_ends_nothing_and_is_found_again(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    bus = await connect_bus(timings=HASTY)
    lost = asyncio.create_task(bus.until_lost())

    nats_server.kill()
    await asyncio.sleep(2)
    assert not lost.done(), "a process that ends now comes back into a back-off"
    assert "no connection for" in bus.disconnected()

    nats_server.start()
    async with asyncio.timeout(10):
        while bus.healthy():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.05)
    assert not lost.done()
    await bus.connection.round_trip()
    lost.cancel()


async def test_a_client_that_stays_without_a_connection_though_a_server_answers_ends_the_process(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    bus = await connect_bus(timings=HASTY)
    nats_server.kill()

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", nats_server.port):
        with pytest.raises(ConnectionLost, match="though NATS answers"):
            await asyncio.wait_for(bus.until_lost(), 15)


async def test_closing_without_a_connection_is_fine(connect_bus: ConnectBus, nats_server: NatsServer) -> None:
    bus = await connect_bus(timings=QUICK)
    nats_server.kill()
    async with asyncio.timeout(5):
        while not bus.disconnected():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.05)
    await bus.connection.client.subscribe("x")  # leaves something to flush

    await bus.close()


async def test_a_client_that_forgets_that_it_was_closed_connects_no_more(
    connect_bus: ConnectBus, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, connecting = await connect_bus(timings=QUICK), asyncio.Event()

    async def forgets(_: Client) -> None:
        connecting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ConnectionResetError("the server has closed it") from None

    monkeypatch.setattr(TolerantClient, "_process_connect_init", forgets)
    nats_server.restart()
    async with asyncio.timeout(15):
        await connecting.wait()
    reconnecting = bus.connection.client._reconnection_task
    assert reconnecting

    await bus.close()

    ended, _ = await asyncio.wait({reconnecting}, timeout=15)
    assert ended


async def test_a_publish_that_is_not_permitted_shows_in_readiness_and_in_a_metric(
    connect_bus: ConnectBus, nats_server: NatsServer
) -> None:
    nats_server.extra = """
      authorization { users = [
        { user: "limited", password: "p", permissions: {
            publish: { deny: ["makeway.v1.plan"] }, subscribe: [">"] } } ] }
    """
    nats_server.restart()
    bus = await Bus.connect(f"nats://limited:p@127.0.0.1:{nats_server.port}", name="test/one")
    before = metrics.ERRORS.labels("permission")._value.get()

    with pytest.raises(BusUnavailable):
        await bus.request_plan(b"", timeout_seconds=0.3)

    assert "permissions violation" in bus.healthy().lower()
    assert metrics.ERRORS.labels("permission")._value.get() == before + 1
    await bus.close()


async def test_closing_is_not_losing(connect_bus: ConnectBus) -> None:
    bus = await connect_bus()
    lost = asyncio.create_task(bus.until_lost())

    await bus.close()
    await asyncio.sleep(0.1)

    assert not lost.done()
    lost.cancel()


def test_nats_py_is_held_to_the_minor_version_whose_private_method_is_overridden() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert "nats-py[nkeys]~=2.16.0" in project["dependencies"]

    own, theirs = (list(inspect.signature(kind._process_msg).parameters) for kind in (TolerantClient, Client))
    assert own == theirs


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ('users: [{ user: "a b", password: "p@ss/%41" }]', "a%20b:p%40ss%2F%2541"),
        ('token: "s@cret/%41"', "s%40cret%2F%2541"),
    ],
    ids=["user and password", "token"],
)
async def test_a_login_in_a_url_is_sent_without_its_percent_signs(
    nats_server: NatsServer, asked: str, given: str
) -> None:
    nats_server.extra = f"authorization {{ {asked} }}"
    nats_server.restart()

    bus = await Bus.connect(f"nats://{given}@127.0.0.1:{nats_server.port}", name="test/one")

    await bus.close()
