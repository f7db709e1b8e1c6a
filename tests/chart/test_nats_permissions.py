"""Every login of the chart's NATS against every subject of the JetStream API, as rendered.

Subjects are what permissions see. What they do not see is tried too: a consumer's name in the request, the
reply subject of a question, and the subject that a consumer delivers to.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import nats
import pytest
from nats.aio.client import Client

from builders_bus import make_order, make_outcome
from chart.conftest import Run
from chart.test_chart import objects, template
from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.nats.jetstream import JetStreamError
from makeway.bus.records import Last
from makeway.bus.streams.configs import evictor_config, wrong_streams
from makeway.bus.streams.consumer import consumer_drift, ensure_consumer
from makeway.bus.streams.named_consumers import parsed, unread
from makeway.bus.subjects import Subjects, inbox

pytestmark = pytest.mark.nats

SUBJECTS: Final = Subjects("one.two")
USERS: Final = (
    "planner",
    "evictor",
    "scheduler",
    "nominator",
    "shadow",
    "streams",
    "viewer",
    "consumer-audit",
)
STREAMS: Final = {
    "O": SUBJECTS.orders_stream,
    "U": SUBJECTS.outcomes_stream,
    "D": SUBJECTS.decisions_stream,
    "C": SUBJECTS.control_stream,
    "Q": SUBJECTS.quarantine_stream,
    "R": SUBJECTS.recordings_stream,
    "E": f"KV_{SUBJECTS.epochs_bucket}",
}
ALL: Final = "OUDCQRE"

ELSEWHERE: Final = (SUBJECTS.control, SUBJECTS.orders_of("pod", "u"), SUBJECTS.outcome("o"))
"""Subjects of streams that are named as where to answer."""

OF_A_STREAM: Final = {
    **{
        f"STREAM.{verb}": f"STREAM.{verb}.{{stream}}"
        for verb in [
            "INFO",
            "CREATE",
            "UPDATE",
            "DELETE",
            "PURGE",
            "SNAPSHOT",
            "RESTORE",
            "MSG.GET",
            "MSG.DELETE",
            "LEADER.STEPDOWN",
            "PEER.REMOVE",
            "PEER.EVACUATE",
            "CANCEL_MOVE",
        ]
    },
    "DIRECT.GET": "DIRECT.GET.{stream}",
    "DIRECT.GET subject": "DIRECT.GET.{stream}.one.two.v1.x",
    "CONSUMER.CREATE": "CONSUMER.CREATE.{stream}",
    "CONSUMER.NAMES": "CONSUMER.NAMES.{stream}",
    "CONSUMER.LIST": "CONSUMER.LIST.{stream}",
}
OF_A_CONSUMER: Final = {
    **{
        f"CONSUMER.{verb}": f"CONSUMER.{verb}.{{stream}}.{{consumer}}"
        for verb in [
            "CREATE",
            "DURABLE.CREATE",
            "INFO",
            "DELETE",
            "PAUSE",
            "RESET",
            "UNPIN",
            "MSG.NEXT",
            "LEADER.STEPDOWN",
            "PEER.REMOVE",
            "PEER.EVACUATE",
        ]
    },
    "CONSUMER.CREATE filter": "CONSUMER.CREATE.{stream}.{consumer}.one.two.v1.orders.>",
}
OF_THE_SERVER: Final = [
    "INFO",
    "STREAM.NAMES",
    "STREAM.LIST",
    "META.LEADER.STEPDOWN",
    "META.RESCUE",
    "SERVER.REMOVE",
    "SERVER.EVACUATE",
    "ACCOUNT.PURGE.MAKEWAY",
    "ACCOUNT.STREAM.MOVE.MAKEWAY.ONE_TWO_ORDERS",
    "ACCOUNT.STREAM.CANCEL_MOVE.MAKEWAY.ONE_TWO_ORDERS",
]

MAY: Final[Mapping[str, Mapping[str, str]]] = {
    "planner": {
        "STREAM.INFO": ALL,
        "STREAM.MSG.GET": "OUDCE",
        "DIRECT.GET": "OUD",
        "DIRECT.GET subject": "OUDCE",
        "CONSUMER.LIST": "OUD",
    },
    "evictor": {
        "STREAM.INFO": ALL,
        "STREAM.MSG.GET": "OUCE",
        "DIRECT.GET": "OUC",
        "DIRECT.GET subject": "OUCE",
        "CONSUMER.INFO evictor": "O",
        "CONSUMER.MSG.NEXT evictor": "O",
        "CONSUMER.DELETE evictor": "O",
        "CONSUMER.CREATE filter evictor": "O",
    },
    "scheduler": {
        "STREAM.INFO": "OUC",
        "STREAM.MSG.GET": "OUC",
        "DIRECT.GET": "OUC",
        "DIRECT.GET subject": "OUC",
        "CONSUMER.CREATE other": "OUC",
        "CONSUMER.CREATE filter other": "OUC",
        "CONSUMER.INFO other": "OUC",
        "CONSUMER.MSG.NEXT other": "OUC",
        "CONSUMER.DELETE other": "OUC",
        "CONSUMER.INFO evictor": "OUC",
        # Of other streams, where the evictors have none.
        "CONSUMER.CREATE evictor": "UC",
        "CONSUMER.CREATE filter evictor": "UC",
        "CONSUMER.MSG.NEXT evictor": "UC",
        "CONSUMER.DELETE evictor": "UC",
    },
    "nominator": {
        "STREAM.INFO": ALL,
        "STREAM.MSG.GET": "OUC",
        "DIRECT.GET": "OUC",
        "DIRECT.GET subject": "OUC",
    },
    "shadow": {},
    "streams": {
        "STREAM.INFO": ALL,
        "STREAM.CREATE": ALL,
        "STREAM.UPDATE": ALL,
        "CONSUMER.LIST": "OUD",
        # By name and with the stream's own filter, which is that of the orders here; not the evictors'.
        "CONSUMER.CREATE filter other": "O",
        "CONSUMER.DELETE other": "OUD",
        "CONSUMER.DELETE evictor": "UD",
    },
    "consumer-audit": {},
    "viewer": {},
}
"""What each login may ask, and of which streams; everything else is denied."""

VIEWER_MAY: Final = {
    "STREAM.INFO": ALL,
    "STREAM.MSG.GET": ALL,
    "DIRECT.GET": ALL,
    "DIRECT.GET subject": ALL,
    "CONSUMER.INFO evictor": "O",
}
"""The same for the viewer, with the prefix of its account."""

CONSUMER_MAY: Final = {"CONSUMER.MSG.NEXT audit": "OU"}
"""The same for the login of a named consumer."""

VIEWERS_ACCOUNT_MAY: Final[Mapping[str, Mapping[str, str]]] = {
    "viewer": VIEWER_MAY,
    "consumer-audit": CONSUMER_MAY,
}

REPLIES_REACH_STREAMS: Final = {"planner", "evictor", "scheduler", "nominator", "streams"}
"""Logins that can have an answer of the JetStream API stored; see docs/reliability.md."""

DELIVERIES_REACH_STREAMS: Final = {"scheduler", "streams"}
"""Logins that can have a consumer deliver into a stream; see docs/reliability.md."""


def asks(stream: str) -> Iterator[tuple[str, str]]:
    """Every subject of the API about one stream, by what MAY calls it."""
    for name, subject in OF_A_STREAM.items():
        yield name, subject.format(stream=stream)
    for name, subject in OF_A_CONSUMER.items():
        for consumer in ("evictor", "other", "audit"):
            yield f"{name} {consumer}", subject.format(stream=stream, consumer=consumer)


def letters(table: Mapping[str, str], name: str) -> str:
    """Of which streams a login may ask; a named consumer is one of the others, but for its own login."""
    other = f"{name.removesuffix(' audit')} other" if name.endswith(" audit") else name
    return table.get(name, table.get(other, ""))


@pytest.fixture
def server(run: Run, nats_server: NatsServer) -> NatsServer:
    """A nats-server with the accounts as the chart renders them; every password is `p`."""
    consumer = ("nats.consumers[0].name=audit", "nats.consumers[0].streams={orders,outcomes}")
    everything = ("bridge=plugin", "nominator.besidePlugin=true", "nominator.verify=shadow")
    rendered = objects(template(run, f"subjectPrefix={SUBJECTS.prefix}", *everything, *consumer))
    config = next(
        one for one in rendered if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "makeway-nats"
    )["data"]["nats.conf"]
    (accounts,) = re.findall(r"^accounts \{\n.*?^\}", config, re.DOTALL | re.MULTILINE)
    nats_server.extra = re.sub(r"\$[A-Z_]+_PASSWORD", "p", accounts)
    nats_server.restart()
    return nats_server


class Asker:
    """A login, and what the server has denied it."""

    def __init__(self, client: Client, denied: list[str]) -> None:
        self.client = client
        self._denied = denied

    async def denied(self, subjects: list[str]) -> set[str]:
        """Publish to all of these, and tell which the server did not take."""
        self._denied.clear()
        for subject in subjects:
            await self.client.publish(subject, b"{}")
        await self.client.flush()
        await asyncio.sleep(0.1)
        found = {text.partition('"')[2].rpartition('"')[0] for text in self._denied}
        return {subject for subject in subjects if subject.lower() in found}


@asynccontextmanager
async def login(server: NatsServer, user: str) -> AsyncIterator[Asker]:
    denied: list[str] = []

    async def note(error: Exception) -> None:
        denied.append(str(error).lower())

    client = await nats.connect(
        f"nats://{user}:p@127.0.0.1:{server.port}",
        inbox_prefix=inbox(user),
        error_cb=note,
        allow_reconnect=False,
    )
    try:
        yield Asker(client, denied)
    finally:
        await client.close()


@asynccontextmanager
async def bus_of(server: NatsServer, user: str) -> AsyncIterator[Bus]:
    name = "cli/test" if user == "viewer" else f"{user}/test"
    bus = await Bus.connect(f"nats://{user}:p@127.0.0.1:{server.port}", name=name, prefix=SUBJECTS.prefix)
    try:
        yield bus
    finally:
        await bus.close()


async def set_up(server: NatsServer) -> None:
    """Have the streams, the evictors' consumer, an order and its outcome."""
    order = make_order("uid-1")
    async with bus_of(server, "streams") as streams:
        await streams.ensure_streams(consumers=parsed("audit=orders,outcomes"))
    async with bus_of(server, "evictor") as evictor:
        await make_consumer(evictor)
        await evictor.publish_outcome(make_outcome(order))
    async with bus_of(server, "planner") as planner:
        await planner.publish_order(order, 0)


async def make_consumer(evictor: Bus) -> None:
    await ensure_consumer(
        evictor.jetstream, SUBJECTS.orders_stream, evictor_config(SUBJECTS), datetime.now(UTC)
    )


async def stored(viewer: Bus) -> dict[str, int]:
    """How many messages each stream has ever stored."""
    return {
        stream: (await viewer.jetstream.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"]
        for stream in STREAMS.values()
    }


async def consumer(viewer: Bus) -> dict[str, Any]:
    info = await viewer.jetstream.api(f"CONSUMER.INFO.{SUBJECTS.orders_stream}.evictor")
    return {**info["config"], "created": info["created"]}


@pytest.mark.parametrize("user", USERS)
async def test_each_login_may_ask_what_it_needs_and_nothing_else(server: NatsServer, user: str) -> None:
    tables = {"$JS.API": MAY[user]}
    if user in VIEWERS_ACCOUNT_MAY:
        tables[SUBJECTS.viewers_api] = VIEWERS_ACCOUNT_MAY[user]
    async with login(server, user) as asker:
        for prefix, table in tables.items():
            # Whoever makes streams reads the account's limits first.
            allowed = [f"{prefix}.INFO"] if user == "streams" else []
            refused = [f"{prefix}.{subject}" for subject in OF_THE_SERVER]
            refused = [subject for subject in refused if subject not in allowed]
            for letter, stream in STREAMS.items():
                for name, subject in asks(stream):
                    wanted = allowed if letter in letters(table, name) else refused
                    wanted.append(f"{prefix}.{subject}")

            assert await asker.denied(allowed) == set()
            assert await asker.denied(refused) == set(refused)


async def test_no_login_changes_the_evictors_consumer_by_a_name_in_the_request(server: NatsServer) -> None:
    await set_up(server)
    stream = SUBJECTS.orders_stream
    creates = [subject for name, subject in asks(stream) if "CREATE" in name and "STREAM" not in name]
    async with bus_of(server, "viewer") as viewer:
        before = await consumer(viewer)
        # As it is but for one thing: what is fixed when a consumer is made would be refused.
        ours = {key: value for key, value in before.items() if key != "created"}
        changes: list[dict[str, Any]] = [
            {"filter_subject": "one.two.v1.orders.none"},
            {"headers_only": True},
            {"max_ack_pending": 1},
        ]
        # On the subject without a name the server takes a name, but no durable one.
        nameless = {key: value for key, value in ours.items() if key != "durable_name"}
        bodies = [
            {"stream_name": stream, "config": {**whole, **change}}
            for whole in (ours, nameless)
            for change in changes
        ]
        for user in USERS:
            async with login(server, user) as asker:
                for prefix in ("$JS.API", SUBJECTS.viewers_api):
                    for subject in creates:
                        # Its own subject is the evictors' to use.
                        if user == "evictor" and ".evictor." in subject:
                            continue
                        for body in bodies:
                            await asker.client.publish(f"{prefix}.{subject}", json.dumps(body).encode())
                await asker.client.flush()
            await asyncio.sleep(0.1)
            assert await consumer(viewer) == before, user


async def test_the_viewers_questions_are_answered_in_no_stream_whatever_the_reply(server: NatsServer) -> None:
    await set_up(server)
    reached = set()
    async with bus_of(server, "viewer") as viewer, bus_of(server, "evictor") as evictor:
        for user in USERS:
            before = await stored(viewer)
            async with login(server, user) as asker:
                for subject in questions(user):
                    for reply in ELSEWHERE:
                        body = b'{"seq":1,"batch":1}' if "GET" in subject else b""
                        await asker.client.publish(subject, body, reply=reply)
                await asker.client.flush()
            await asyncio.sleep(0.3)
            if await stored(viewer) != before:
                reached.add(user)
            await make_consumer(evictor)

    assert reached == REPLIES_REACH_STREAMS


def questions(user: str) -> Iterator[str]:
    """All that a login may ask of the API, and of the components."""
    prefix, table = "$JS.API", MAY[user]
    if user in VIEWERS_ACCOUNT_MAY:
        prefix, table = SUBJECTS.viewers_api, VIEWERS_ACCOUNT_MAY[user]
    for letter, stream in STREAMS.items():
        for name, subject in asks(stream):
            if letter in letters(table, name) and "DELETE" not in name:
                yield f"{prefix}.{subject}"
    yield SUBJECTS.status
    yield SUBJECTS.queues


async def test_no_login_but_two_has_a_consumer_deliver_into_a_stream(server: NatsServer) -> None:
    await set_up(server)
    reached = set()
    async with (
        bus_of(server, "viewer") as viewer,
        bus_of(server, "planner") as planner,
        bus_of(server, "scheduler") as scheduler,
    ):
        for user in USERS:
            # One that no stream has yet: the same message is stored once.
            await planner.publish_order(make_order(f"uid-{user}"), 0)
            before = await stored(viewer)
            async with login(server, user) as asker:
                for number, (stream, filter_) in enumerate(
                    ((SUBJECTS.orders_stream, SUBJECTS.orders), (SUBJECTS.outcomes_stream, SUBJECTS.outcomes))
                ):
                    for subject in pushes(stream, f"push-{user}-{number}", filter_):
                        name = "evictor" if ".evictor" in subject else f"push-{user}-{number}"
                        config = {
                            "name": name,
                            "deliver_policy": "all",
                            "ack_policy": "none",
                            "filter_subject": filter_,
                            "deliver_subject": SUBJECTS.control,
                        }
                        body = json.dumps({"stream_name": stream, "config": config}).encode()
                        for prefix in ("$JS.API", SUBJECTS.viewers_api):
                            await asker.client.publish(f"{prefix}.{subject}", body)
                await asker.client.flush()
            await asyncio.sleep(0.3)
            if await stored(viewer) != before:
                reached.add(user)
            for number, stream in enumerate((SUBJECTS.orders_stream, SUBJECTS.outcomes_stream)):
                with suppress(JetStreamError):  # this login has made none
                    await scheduler.jetstream.api(f"CONSUMER.DELETE.{stream}.push-{user}-{number}")

        assert reached == DELIVERIES_REACH_STREAMS
        assert await wrong_streams(viewer.jetstream, SUBJECTS) == {}
        info = await viewer.jetstream.api(f"CONSUMER.INFO.{SUBJECTS.orders_stream}.evictor")
        assert consumer_drift(evictor_config(SUBJECTS), info) == {}


def pushes(stream: str, name: str, filter_: str) -> Iterator[str]:
    """Every subject on which a consumer can be made."""
    yield f"CONSUMER.CREATE.{stream}"
    for one in (name, "evictor"):
        yield f"CONSUMER.CREATE.{stream}.{one}"
        yield f"CONSUMER.CREATE.{stream}.{one}.{filter_}"
        yield f"CONSUMER.DURABLE.CREATE.{stream}.{one}"


async def test_the_read_only_login_reads_everything_through_its_account(server: NatsServer) -> None:
    await set_up(server)
    async with bus_of(server, "viewer") as viewer:
        order = await viewer.last_order("uid-1")

        assert isinstance(order, Last)
        assert await viewer.outcome(order.message.order_id) is not None
        assert await wrong_streams(viewer.jetstream, SUBJECTS) == {}
        assert viewer.healthy() == ""


async def test_a_named_consumers_login_fetches_and_acknowledges_its_own_and_no_fetch_reaches_a_stream(
    server: NatsServer,
) -> None:
    await set_up(server)
    fetch = f"{SUBJECTS.viewers_api}.CONSUMER.MSG.NEXT.{SUBJECTS.orders_stream}.audit"
    async with bus_of(server, "viewer") as viewer, bus_of(server, "planner") as planner:
        before = await stored(viewer)
        behind = await unread(planner.jetstream, SUBJECTS)
        assert behind == {("audit", "orders"): 1, ("audit", "outcomes"): 1}
        async with login(server, "consumer-audit") as asker:
            for reply in ELSEWHERE:
                await asker.client.publish(fetch, b'{"batch":1,"expires":100000000}', reply=reply)
            await asker.client.flush()
            await asyncio.sleep(0.3)
            assert await stored(viewer) == before

            outcomes = await asker.client.jetstream(prefix=SUBJECTS.viewers_api).pull_subscribe_bind(
                "audit", SUBJECTS.outcomes_stream
            )
            (message,) = await outcomes.fetch(1, timeout=5)
            await message.ack()
            await asker.client.flush()
            assert await asker.denied([f"$JS.ACK.{SUBJECTS.orders_stream}.evictor.1.1.1.1.0"])
        await asyncio.sleep(0.3)
        assert (await unread(planner.jetstream, SUBJECTS))["audit", "outcomes"] == 0


async def test_no_acknowledgement_of_a_login_asks_another_consumer_for_a_message(server: NatsServer) -> None:
    await set_up(server)
    orders, outcomes = SUBJECTS.orders_stream, SUBJECTS.outcomes_stream
    async with bus_of(server, "planner") as planner:

        async def delivered() -> dict[str, Any]:
            answer = await planner.jetstream.api(f"CONSUMER.LIST.{orders}")
            return {one["name"]: one["delivered"] for one in answer["consumers"]}

        before = await delivered()
        for user, own, other in (("consumer-audit", "audit", "evictor"), ("evictor", "evictor", "audit")):
            async with login(server, user) as asker:
                answers = asker.client.new_inbox()
                taken = await asker.client.subscribe(answers)
                for stream in (orders, outcomes):
                    subject = f"$JS.ACK.{orders}.{other}.{stream}.{own}.1.1.1"
                    await asker.client.publish(subject, b"+NXT", reply=answers)
                await asker.client.flush()
                with pytest.raises(TimeoutError):
                    await taken.next_msg(timeout=0.5)
        assert await delivered() == before
        assert before.keys() == {"audit", "evictor"}
