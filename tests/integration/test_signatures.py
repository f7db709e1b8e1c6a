"""Orders and outcomes that a stolen login of NATS writes, where signatures are required: they do nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial

import pytest
import pytest_asyncio

from builders_bus import make_outcome
from integration.builders import make_pod
from integration.cluster import RunningCluster
from integration.configuring import NAMESPACE
from integration.scraping import scrape
from integration.space import Space
from integration.test_evictor_api import Scene
from integration.waiting import NotYet, until
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.nats.follow import Start
from makeway.bus.records import Unverified
from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.dev import signing_keys
from makeway.dev.cluster import DevCluster
from makeway.dev.options import EVICTOR, KWOK, NATS, ClusterOptions
from makeway.evictor.intake.service import KEYS_BEHIND
from makeway.evictor.limits.breaker import OPENS_AT
from narrowing import as_a, there


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Give a control plane that requires signatures; the tests write its orders."""
    options = ClusterOptions(components=frozenset({NATS, KWOK, EVICTOR}), signatures="require")
    running = RunningCluster(DevCluster(tmp_path_factory.mktemp("signed") / "cluster", options).start())
    yield running
    running.owned.stop()


def key_of(cluster: RunningCluster, kind: SigningKind) -> SigningKey:
    return there(signing_keys.read(cluster.owned.directory, kind))


@pytest_asyncio.fixture
async def bus(cluster: RunningCluster, space: Space) -> AsyncIterator[Bus]:
    """Give a connection that signs as the planner does; what is forged is no order of any part."""
    space.judged = False
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{signing_keys.CONFIGMAP}"
    public = PublicKeys.parse(json.loads(await space.api.request("GET", path))["data"])
    signing = {SigningKind.ORDER: key_of(cluster, SigningKind.ORDER)}
    signatures = Signatures("require", signing=signing, public=public)
    connected = await Bus.connect(cluster.info.nats_url, name="scheduler/test", signatures=signatures)
    yield connected
    await connected.close()


@pytest_asyncio.fixture
async def scene(space: Space, bus: Bus) -> Scene:
    """Give a running pod, and a preemptor that waits for its place."""
    scene = Scene(space, bus)
    await scene.set(make_pod("a"))
    return scene


async def store(bus: Bus, subject: str, data: bytes) -> None:
    """Store bytes as a login can that may publish there."""
    await bus.jetstream.publish(subject, data, headers={}, timeout_seconds=2)


async def quarantined(bus: Bus) -> Counter[str]:
    stream = bus.subjects.quarantine_stream
    read = [m async for m in bus.follow(stream, start=Start.beginning(), stop_at_end=True)]
    return Counter(m.headers["Makeway-Reason"] for m in read)


async def put_aside(bus: Bus, count: int) -> Counter[str]:
    """Return what is in the quarantine, by reason, once there is so much of it."""
    found = await quarantined(bus)
    if found.total() < count:
        raise NotYet(str(found))
    return found


async def test_a_forged_outcome_neither_ends_an_order_nor_keeps_its_own_out(scene: Scene, bus: Bus) -> None:
    order = await scene.order("a")
    now = datetime.now(UTC)
    forged = make_outcome(
        order,
        result="failed",
        evictor="forger",
        started_at=now,
        finished_at=now,
        node="",
        victims=(),
        deliveries=1,
    )
    await store(bus, bus.subjects.outcome(order.order_id), codec.wrap(forged, "makeway/evictor/forger"))

    started = datetime.now(UTC)
    await scene.give(order)
    outcome = await scene.outcome(order)

    assert outcome.result == "succeeded"
    assert (outcome.finished_at - started).total_seconds() < 5
    assert scene.deletes() == ["a"]


async def test_forged_orders_delete_nothing_are_put_aside_and_open_the_breaker(
    cluster: RunningCluster, scene: Scene, bus: Bus
) -> None:
    order = await scene.order("a")
    subject = bus.subjects.order(order)
    await asyncio.sleep(KEYS_BEHIND.total_seconds())  # of an evictor that has just started
    evictor = Signatures(signing={SigningKind.ORDER: key_of(cluster, SigningKind.OUTCOME)})
    signed = bus.signatures.wrap(order, "makeway/scheduler/test", subject)
    messages = {
        "unsigned": codec.wrap(order, "makeway/scheduler/forger"),
        "unknown-key": evictor.wrap(order, "makeway/scheduler/forger", subject),
        "invalid-signature": signed.replace(b'"gracePeriodSeconds":1', b'"gracePeriodSeconds":0'),
    }
    assert messages["invalid-signature"] != signed

    # One after the other: the stream keeps few messages of one subject, and drops the oldest unread.
    for number in range(OPENS_AT["signatures"]):
        await store(bus, subject, list(messages.values())[number % len(messages)])
        found = await until("it is put aside", partial(put_aside, bus, number + 1))

    assert set(found) == set(messages)
    assert scene.deletes() == []
    assert await bus.outcome(order.order_id) is None
    last = as_a(Unverified, await bus.last_like(order))

    await bus.publish_order(order, last.sequence)
    outcome = await scene.outcome(order)

    assert (outcome.result, outcome.reason) == ("refused", "breaker-open")
    samples = await scrape(cluster.info.evictor_url)
    assert samples.total("makeway_bus_signature_failures_total", kind="order") == OPENS_AT["signatures"]
    assert scene.deletes() == []
