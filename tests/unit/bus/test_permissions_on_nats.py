"""The lists of permissions against a real nats-server that enforces them.

What each login may ask of the JetStream API is in chart/test_nats_permissions.py, subject by subject.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import nats
import pytest

from fixtures_nats import NatsServer
from makeway.bus import metrics
from makeway.bus.client import Bus
from makeway.bus.component_status import ComponentStatus
from makeway.bus.errors import BusUnavailable
from makeway.bus.nats.jetstream import Ack, JetStream
from makeway.bus.subjects import Subjects
from makeway.dev.nats_permissions import Permissions, permissions, server_accounts, server_permissions
from makeway.dev.samples import MESSAGES
from narrowing import as_a

SUBJECTS = Subjects("one.two")


@pytest.fixture
def guarded(nats_server: NatsServer) -> NatsServer:
    """A server that knows every user of the list, with their permissions; the password is `p`."""
    users = {name: _user(name, given) for name, given in permissions(SUBJECTS).items()}
    nats_server.extra = f"accounts: {json.dumps(server_accounts(SUBJECTS, users))}"
    nats_server.restart()
    return nats_server


def _user(name: str, given: Permissions) -> Mapping[str, Any]:
    return {"user": name, "password": "p", "permissions": server_permissions(given)}


def _same(status: ComponentStatus) -> ComponentStatus:
    return status


async def _bus(server: NatsServer, user: str) -> Bus:
    return await Bus.connect(
        f"nats://{user}:p@127.0.0.1:{server.port}", name=f"{user}/test", prefix="one.two"
    )


async def _denied(
    server: NatsServer, user: str, *, publish: Sequence[str] = (), subscribe: Sequence[str] = ()
) -> set[str]:
    """Try all of these, and say which of them the server refused."""
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    client = await nats.connect(
        f"nats://{user}:p@127.0.0.1:{server.port}", error_cb=note, allow_reconnect=False
    )
    for subject in publish:
        await client.publish(subject, b"{}")
    for subject in subscribe:
        await client.subscribe(subject)
    await client.flush()
    for _ in range(100):
        if len(errors) == len(publish) + len(subscribe):
            break
        await asyncio.sleep(0.01)
    await client.close()
    return {
        subject
        for subject in (*publish, *subscribe)
        if any(f'"{subject}"'.lower() in error.lower() for error in errors)
    }


async def test_one_login_sets_the_streams_up_and_others_may_look(guarded: NatsServer) -> None:
    streams = await _bus(guarded, "streams")

    await streams.ensure_streams()

    assert streams.healthy() == ""
    await streams.close()
    for user in ("planner", "evictor"):
        bus = await _bus(guarded, user)
        await bus.watch_streams()
        assert bus.healthy() == "", user
        await bus.close()


async def test_nobody_says_what_is_not_theirs_to_say(guarded: NatsServer) -> None:
    order, quota, outcome = "one.two.v1.orders.pod.u", "one.two.v1.orders.quota.q", "one.two.v1.outcomes.o"
    group = "one.two.v1.orders.group.u"
    control, elsewhere = "one.two.v1.control", "makeway.v1.control"
    forbidden = {
        "planner": (outcome, elsewhere),
        "evictor": (order, group, quota, control),
        "scheduler": (order, group, quota, outcome, control),
        "nominator": (order, group, quota, outcome, control, "one.two.v1.plan.group"),
        "shadow": (order, group, quota, outcome, control, "one.two.v1.plan.group", "one.two.v1.verify"),
        "streams": (order, group, outcome, control),
        "viewer": (order, group, quota, outcome, control),
    }

    for user, subjects in forbidden.items():
        assert await _denied(guarded, user, publish=subjects) == set(subjects), user


async def test_a_nominator_alone_asks_a_shadow_and_a_shadow_alone_answers(guarded: NatsServer) -> None:
    verify = ("one.two.v1.verify",)

    for user in permissions(SUBJECTS):
        asks, answers = user == "nominator", user == "shadow"
        assert await _denied(guarded, user, publish=verify) == (set() if asks else set(verify)), user
        assert await _denied(guarded, user, subscribe=verify) == (set() if answers else set(verify)), user


async def test_what_nats_answers_to_a_part_no_other_login_can_answer(guarded: NatsServer) -> None:
    """Who may publish there can say what a stream holds, and that a message is stored."""
    for part in ("planner", "evictor", "streams"):
        answer = (f"_INBOX.makeway.{part}.of-a-request.1",)
        for user in permissions(SUBJECTS).keys() - {part}:
            assert await _denied(guarded, user, publish=answer) == set(answer), (part, user)


async def test_a_question_to_be_answered_where_a_part_may_not_leaves_it_ready(guarded: NatsServer) -> None:
    planner = await _bus(guarded, "planner")
    asked = []

    async def answer(data: bytes, _: str) -> bytes:
        asked.append(data)
        return b"{}"

    await planner.serve_plan(answer)
    asker = await nats.connect(f"nats://scheduler:p@127.0.0.1:{guarded.port}")
    for reply in ("evictor.a", "planner.a", "scheduler..a", "scheduler.", "scheduler.a"):
        await asker.publish(SUBJECTS.plan, reply.encode(), reply=f"_INBOX.makeway.{reply}")
    await asker.flush()
    async with asyncio.timeout(5):
        while not asked:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
    await planner.connection.round_trip()

    assert asked == [b"scheduler.a"]
    assert planner.healthy() == ""
    await asker.close()
    await planner.close()


async def test_services_alone_are_woken_by_the_streams_that_they_follow(guarded: NatsServer) -> None:
    subjects = {
        "orders": SUBJECTS.orders,
        "outcomes": SUBJECTS.outcomes,
        "control": SUBJECTS.control,
        "decisions": SUBJECTS.decisions,
    }
    woken = {
        "planner": {"orders", "outcomes"},
        "evictor": {"outcomes", "control"},
        "nominator": {"outcomes", "control"},
    }

    for user in permissions(SUBJECTS):
        allowed = {subjects[name] for name in woken.get(user, set())}
        denied = await _denied(guarded, user, subscribe=tuple(subjects.values()))
        assert denied == set(subjects.values()) - allowed, user


async def test_a_viewer_cannot_listen_in(guarded: NatsServer) -> None:
    ears = ("_INBOX.>", "_INBOX.makeway.planner.>", "one.two.v1.plan", "one.two.v1.>")

    assert await _denied(guarded, "viewer", subscribe=ears) == set(ears)


async def test_a_planner_answers_people_and_speaks_in_no_other_inbox(guarded: NatsServer) -> None:
    planner, viewer = await _bus(guarded, "planner"), await _bus(guarded, "viewer")

    async def answer(_: bytes) -> bytes:
        return b"none"

    await planner.serve_queues(answer)

    assert await viewer.request_queues(b"{}", 2.0) == b"none"
    assert planner.healthy() == viewer.healthy() == ""
    await planner.connection.client.publish("_INBOX.makeway.evictor.x", b"unasked")
    await planner.connection.round_trip()
    assert "permissions violation" in planner.healthy().lower()
    await planner.close()
    await viewer.close()


async def test_people_and_planners_may_ask_every_component_and_each_answers(guarded: NatsServer) -> None:
    sample = as_a(ComponentStatus, MESSAGES["component-status.full"])
    buses = [await _bus(guarded, user) for user in ("planner", "evictor", "scheduler", "shadow")]
    for bus in buses:
        own = msgspec.structs.replace(sample, identity=bus.source)
        await bus.components.answer(partial(_same, own))
        await bus.connection.client.flush()

    for user in ("viewer", "planner"):
        asking = await _bus(guarded, user)
        answers = await asking.components.ask(1.0)
        assert sorted(one.identity for one in answers) == sorted(bus.source for bus in buses)
        await asking.close()
    for bus in buses:
        await bus.close()


@pytest.mark.parametrize("reply", ["one.two.v1.control", "one.two.v1.outcomes.o", "one.two.v1.orders.pod.u"])
async def test_no_component_is_made_to_write_into_a_stream_by_the_reply_that_a_question_names(
    guarded: NatsServer, reply: str
) -> None:
    sample = as_a(ComponentStatus, MESSAGES["component-status.full"])
    streams = await _bus(guarded, "streams")
    await streams.ensure_streams()
    buses = [await _bus(guarded, user) for user in ("planner", "evictor", "scheduler")]
    for bus in buses:
        await bus.components.answer(partial(_same, sample))
        await bus.connection.client.flush()
    refused = metrics.REPLIES_REFUSED._value.get()
    viewer = await _bus(guarded, "viewer")

    await viewer.connection.client.publish(SUBJECTS.status, b"", reply=reply)
    assert len(await viewer.components.ask(0.5)) == 1
    await buses[0].connection.client.publish(SUBJECTS.status, b"", reply=reply)
    async with asyncio.timeout(5):
        while metrics.REPLIES_REFUSED._value.get() < refused + len(buses):  # noqa: ASYNC110 - a counter
            await asyncio.sleep(0.01)

    for stream in (SUBJECTS.control_stream, SUBJECTS.outcomes_stream, SUBJECTS.orders_stream):
        info = await viewer.jetstream.api(f"STREAM.INFO.{stream}")
        assert info["state"]["messages"] == 0
    for bus in (streams, viewer, *buses):
        await bus.close()


async def test_a_planner_goes_on_recording_where_the_acknowledgement_of_a_part_was_lost(
    guarded: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, planner = await _bus(guarded, "streams"), await _bus(guarded, "planner")
    await streams.ensure_streams()
    stored: list[int] = []

    async def lose_the_first_answer(*args: Any, **options: Any) -> Ack:
        ack = await JetStream.publish(planner.jetstream, *args, **options)
        stored.append(ack.sequence)
        raise BusUnavailable("no answer in time")

    monkeypatch.setattr(planner.jetstream, "publish", lose_the_first_answer)

    first = await planner.publish_recording("rec-1", 0, b"first", 0)
    second = await planner.publish_recording("rec-1", 1, b"second", first)

    assert [first, second] == stored
    assert planner.healthy() == ""
    await streams.close()
    await planner.close()


async def test_a_planner_tells_that_a_part_is_lost_without_the_recordings(guarded: NatsServer) -> None:
    streams, planner = await _bus(guarded, "streams"), await _bus(guarded, "planner")
    await streams.ensure_streams()
    first = await planner.publish_recording("rec-1", 0, b"first", 0)

    with pytest.raises(BusUnavailable, match="part 1 of recording rec-1 is not the last one stored"):
        await planner.publish_recording("rec-1", 2, b"third", first + 1)

    assert planner.healthy() == ""
    await streams.close()
    await planner.close()
