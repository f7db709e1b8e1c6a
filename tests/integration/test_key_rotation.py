"""Signatures required on a real API server and NATS: keys change under load."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from background import background
from integration.asking import run
from integration.builders import make_pod
from integration.cluster import RunningCluster
from integration.scraping import scrape
from integration.signing import mounting, signatures_of, store_secrets
from integration.space import Space
from integration.test_evictor_api import Scene
from integration.waiting import NotYet, until
from makeway.bus.client import Bus
from makeway.bus.signing.keys import PublicKeys, SigningKind
from makeway.cli.history.unreadable import unreadable
from makeway.cli.keys.stores import PUBLISHED_AT
from makeway.dev import signing_keys
from makeway.dev.access import NAMESPACE
from makeway.dev.cluster import DevCluster
from makeway.dev.options import EVICTOR, KWOK, LIFTED_RATES, NATS, ClusterOptions
from makeway.evictor.limits.breaker import OPENS_AT
from makeway.runtime.key_ring import CONFIGMAP, KeyRing

pytestmark = pytest.mark.wide

POLL_SECONDS = 6
"""Within this time every part has read its keys anew."""
IN_USE_SECONDS = 22
"""Within this time of its public key every part signs with its new private key."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Give a cluster of its own, with two evictors that require signatures and no scheduler."""
    options = ClusterOptions(
        components=frozenset({NATS, KWOK, EVICTOR}), limits=LIFTED_RATES, signatures="require"
    )
    running = RunningCluster(DevCluster(tmp_path_factory.mktemp("keys") / "cluster", options).start())
    running.start_replica(EVICTOR)
    yield running
    running.owned.stop()


@pytest.fixture
def scene(space: Space, bus: Bus) -> Scene:
    """Give a test its stage."""
    space.judged = False
    return Scene(space, bus)


async def parked(cluster: RunningCluster) -> list[tuple[str, str]]:
    """Return subject and reason of what the evictors have put aside."""
    reader = await Bus.connect(cluster.info.nats_url, name="tests/quarantine")
    try:
        return [(one.message.subject, one.message.reason) for one in await unreadable(reader, None)]
    finally:
        await reader.close()


async def keys(cluster: RunningCluster, *arguments: str) -> str:
    code, out, err = await run(cluster, "keys", *arguments)
    assert code == 0, err
    return out


async def finish(cluster: RunningCluster) -> None:
    """End a rotation as if it had begun 15 minutes ago."""
    with pytest.raises(AssertionError, match="may still be on their way"):
        await keys(cluster, "rotate", "--finish")
    long_ago = f"{PUBLISHED_AT}=2026-01-01T00:00:00Z"
    await cluster.kubectl("annotate", "configmap", CONFIGMAP, "-n", NAMESPACE, "--overwrite", long_ago)
    await keys(cluster, "rotate", "--finish")


async def public_keys(cluster: RunningCluster) -> PublicKeys:
    text = await cluster.kubectl("get", "configmap", "makeway-keys", "-n", NAMESPACE, "-o", "json")
    return PublicKeys.parse(json.loads(text)["data"])


async def test_new_keys_are_published_and_are_not_made_twice(cluster: RunningCluster) -> None:
    await cluster.kubectl("create", "namespace", "another")

    made = await keys(cluster, "new", "--makeway-namespace=another")

    text = await cluster.kubectl("get", "configmap", "makeway-keys", "-n", "another", "-o", "json")
    published = PublicKeys.parse(json.loads(text)["data"]).ids()
    assert [len(ids) for ids in published.values()] == [1] * len(SigningKind)
    assert all(key_id in made for ids in published.values() for key_id in ids)
    with pytest.raises(AssertionError, match="there are keys already"):
        await keys(cluster, "new", "--makeway-namespace=another")


async def test_keys_are_rotated_under_load_and_no_order_is_refused_or_lost(
    cluster: RunningCluster, scene: Scene, bus: Bus
) -> None:
    await store_secrets(cluster)
    await scene.set()
    before, parked_before = await public_keys(cluster), len(await parked(cluster))
    rotated = asyncio.Event()
    ended: list[str] = []
    used: set[str] = set()
    bus.signatures.mode = "require"
    ring = KeyRing(
        scene.space.api,
        bus.signatures,
        kinds=(SigningKind.ORDER,),
        directory=signing_keys.directory(cluster.owned.directory, "planner"),
        namespace=NAMESPACE,
    )
    await ring.read_first()

    async def load() -> None:
        """Order one victim after the other, as a planner does."""
        while not rotated.is_set() or not ended:
            name = f"v{len(ended)}"
            await scene.space.run(make_pod(name).on("n1"))
            used.add(bus.signatures.signing[SigningKind.ORDER].key_id)
            order = await scene.order(name)
            await scene.give(order)
            ended.append((await scene.outcome(order)).result)

    async def rotate() -> None:
        await asyncio.sleep(1)
        await keys(cluster, "rotate")
        await asyncio.sleep(IN_USE_SECONDS)
        await finish(cluster)
        await asyncio.sleep(POLL_SECONDS)
        rotated.set()

    async with background(ring.keep_forever()), mounting(cluster, scene.space.api):
        await asyncio.gather(load(), rotate())

    assert set(ended) == {"succeeded"}
    assert len(ended) > 20
    assert len(used) == 2
    after = await public_keys(cluster)
    for kind in SigningKind:
        assert len(after.ids()[str(kind)]) == 1
        assert after.ids()[str(kind)] != before.ids()[str(kind)]
    assert len(await parked(cluster)) == parked_before


async def test_replaced_keys_open_no_breaker_and_nothing_is_signed_until_the_new_ones_are_there(
    cluster: RunningCluster, scene: Scene, bus: Bus
) -> None:
    await store_secrets(cluster)
    await scene.set(make_pod("a"))
    bus.signatures.signing = signatures_of(cluster).signing
    order = await scene.order("a")
    subject = bus.subjects.order(order)
    late = bus.signatures.wrap(order, "makeway/scheduler/late", subject)
    before = len(await parked(cluster))
    await keys(cluster, "new", "--replace", "--kind=order", "--kind=outcome", "--yes")
    await asyncio.sleep(POLL_SECONDS)

    async with cluster.jetstream() as jetstream:
        for _ in range(2 * OPENS_AT["signatures"]):
            await jetstream.publish(subject, late)

    async def aside() -> bool:
        # The stream keeps the last order of a subject, so one may be gone before it is delivered.
        found = (await parked(cluster))[before:]
        if len(found) < OPENS_AT["signatures"]:
            raise NotYet(f"in quarantine: {found}")
        assert set(found) == {(subject, "retired-key")}
        return True

    await until("the orders of the replaced key are put aside", aside)
    evictor = await scrape(cluster.info.evictor_url)
    assert evictor.total("makeway_evictor_breaker_open") == 0
    assert scene.deletes() == []

    async with mounting(cluster, scene.space.api):
        await asyncio.sleep(2 * POLL_SECONDS)
        bus.signatures.signing = signatures_of(cluster).signing
        true = await scene.order("a")
        await scene.give(true)
        bus.signatures.mode, bus.signatures.public = "require", await public_keys(cluster)
        assert (await scene.outcome(true)).result == "succeeded"
