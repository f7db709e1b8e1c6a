"""Bad messages on every subject: counted, put aside where they can be seen, and in no other message's way.

No process ends, no pod is marked or deleted for one, and a healthy preemption among them takes at most a
second longer. What an evictor refuses for which reason is in tests/unit/evictor/test_decide.py.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import nats
from msgspec.structs import replace

from builders_bus import make_decision, make_outcome
from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.conftest import PrivateCluster
from integration.preempting import EVICTOR_USER, outcome_of_order, run_victims
from integration.scraping import scrape
from integration.space import Space, open_space
from integration.test_evictor_api import Scene, nominate
from integration.waiting import until_seen
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.messages import EvictionOrder, Fence
from makeway.dev.options import ClusterOptions

SERVICES = ("planner", "evictor", "scheduler")
PREFIX = "makeway.v1"
FORGER = "makeway/scheduler/forger"
PODS = {"low": "low", "equal": "high", "system": "system-node-critical"}
"""Pods beside the preemptor that waits, and their classes."""


async def forged(scene: Scene, epoch: int) -> list[tuple[EvictionOrder, str, str]]:
    """Return orders that can be read and must evict no pod, with the result and the reason of each."""
    fence = Fence(kind="lease", namespace="kube-system", name="makeway-scheduler", epoch=epoch)

    async def order(victim: str, uid: str = "", **changes: Any) -> EvictionOrder:
        """Order a pod as if it had the least priority."""
        made = await scene.order(victim, **{"fence": fence, **changes})
        victims = [replace(one, priority=-(2**31), uid=uid or one.uid) for one in made.victims]
        return replace(made, victims=tuple(victims))

    late = datetime.now(UTC) - timedelta(seconds=1)
    return [
        (await order("low", not_after=late), "expired", "expired"),
        (await order("low", fence=replace(fence, epoch=epoch - 1)), "refused", "stale-epoch"),
        (await order("equal"), "refused", "victim-spared"),
        (await order("system"), "refused", "victim-spared"),
        (await order("low", node_uid="forged"), "cancelled", "node-gone"),
        # Nothing has to go for it: it may succeed, and deletes nothing.
        (await order("low", uid="forged"), "succeeded", ""),
    ]


def unreadable(order: EvictionOrder, source: random.Random) -> Iterator[tuple[str, bytes, str]]:
    """Return what cannot be read, or stands where it does not belong: subject, bytes, and why."""
    good = codec.wrap(order, FORGER)
    outcome = codec.wrap(make_outcome(order), "makeway/evictor/x")
    kinds = (
        ("orders.pod", source.randbytes(200), "not-json"),
        ("orders.pod", b"", "not-json"),
        ("orders.pod", good[:-7], "not-json"),
        ("orders.pod", b'{"orderId":["a"]}', "invalid"),
        ("orders.pod", b"[1,2,3]", "invalid"),
        ("orders.pod", good.replace(b"order.v1", b"order.v2"), "unknown-version"),
        ("orders.pod", codec.wrap(make_decision(), "makeway/planner/x"), "unknown-type"),
        ("orders.pod", good.replace(b"dev.makeway.order.v1", b"com.example.a"), "unknown-type"),
        ("orders.pod", b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too-deep"),
        ("orders.pod", good[:-1] + b',"x":"' + b"x" * 900_000 + b'"', "not-json"),
        ("orders.pod", good, "wrong-subject"),
        ("outcomes", source.randbytes(100), "not-json"),
        ("outcomes", outcome.replace(b"outcome.v1", b"outcome.v9"), "unknown-version"),
        ("outcomes", outcome, "wrong-subject"),
    )
    for number, (subject, data, reason) in enumerate(kinds):
        # A subject of its own each: a stream keeps a few messages of one.
        yield f"{PREFIX}.{subject}.rubbish-{number}", data, reason
    yield f"{PREFIX}.orders.pod.\x1b[31m", b"{", "not-json"


def harmless(source: random.Random) -> Iterator[tuple[str, bytes]]:
    """Return rubbish where no part acts on it: plan requests, decisions, control, the quarantine itself."""
    version = b'{"apiVersion":"makeway.dev/v2"}'
    for junk in (b"", b"{", b"[]", source.randbytes(99), b"[" * 99_999, b"null", version):
        for subject in ("plan", "control", "decisions.pod.rubbish", "quarantine.evictor"):
            yield f"{PREFIX}.{subject}", junk
    state = ControlState(revision=2**62, mode="off", cluster_uid="x")
    yield f"{PREFIX}.control", codec.wrap(state, "x/y", at=datetime.now(UTC))


async def preempt_once(space: Space, name: str) -> float:
    """A healthy preemption on a node of its own; the seconds from its order to its outcome."""
    await space.add_nodes(make_node(name).cpu("500m"))
    await run_victims(space, make_pod(f"v-{name}").priority("low").cpu("500m").on(name))
    here = {"kubernetes.io/hostname": space.node_name(name)}
    (preemptor,) = await space.create(
        make_pod(f"p-{name}").priority("high").cpu("500m").spec(nodeSelector=here)
    )
    order, outcome = await outcome_of_order(space, preemptor)
    assert outcome.result == "succeeded"
    await space.until_bound(f"p-{name}")
    return (outcome.finished_at - order.created_at).total_seconds()


async def listed(cluster: RunningCluster, form: str) -> str:
    """Call `makeway history --unreadable`."""
    code = "from makeway.cli.main import main; main()"
    arguments = ["history", "--unreadable", "-o", form, "--nats-url", cluster.info.nats_url]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def epoch_of(space: Space) -> int:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/makeway-scheduler"
    lease = json.loads(await space.api.request("GET", path))
    return int(lease["spec"].get("leaseTransitions", 0))


async def test_bad_messages_on_every_subject_do_no_harm(private_cluster: PrivateCluster) -> None:
    # What is not signed is taken, so that it meets what each part checks by itself.
    cluster = await private_cluster(ClusterOptions(fallback=False, signatures="log"))
    source = random.Random(1)
    bus = await Bus.connect(cluster.info.nats_url, name="scheduler/test")
    connection = await nats.connect(cluster.info.nats_url)
    try:
        async with open_space(cluster) as space:
            # Forged orders have no writer that keeps its promises, so the checker has nothing to judge by.
            space.judged = False
            scene = Scene(space, bus)
            await scene.set(*(make_pod(name).priority(of).cpu("100m") for name, of in PODS.items()))
            before = await space.pods()
            usual = await preempt_once(space, "before")
            pids = {name: cluster.process(name).pid for name in SERVICES}
            orders = await forged(scene, await epoch_of(space))
            bad = list(unreadable(orders[0][0], source))

            among = asyncio.create_task(preempt_once(space, "among"))
            for subject, data in (*((subject, data) for subject, data, _ in bad), *harmless(source)):
                await connection.publish(subject, data)
            for order, result, reason in orders:
                # They share the preemptor: the end of one takes back what the next would find.
                await nominate(space, "urgent", scene.node)
                for _ in range(2):  # it comes again after its end
                    await connection.publish(bus.subjects.order(order), codec.wrap(order, FORGER))
                    outcome = await scene.outcome(order)
                assert (outcome.result, outcome.reason) == (result, reason)
            slowest = await among

            reasons = Counter(reason for _, _, reason in bad)

            async def parked() -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = json.loads(await listed(cluster, "json"))
                return found

            found = await until_seen(
                "all is in quarantine",
                parked,
                lambda found: Counter(one["reason"] for one in found) == reasons,
                every=0.5,
            )
            assert next(one for one in found if "x1b" in one["subject"])["reason"] == "not-json"
            assert "\x1b" not in await listed(cluster, "wide")
            # Each has one outcome, though it came twice.
            assert [len(await space.bus.outcomes(one.order_id)) for one, _, _ in orders] == [1] * len(orders)
            assert slowest < usual + 1.0
            assert {name: cluster.process(name).pid for name in SERVICES} == pids
            await assert_untouched(space, {name: before[name].metadata.uid for name in PODS})
            evictor = await scrape(cluster.info.evictor_url)
            assert evictor.total("makeway_evictor_defects_total") == 0
            of_orders = sum(".orders." in subject for subject, _, _ in bad)
            assert evictor.total("makeway_evictor_parked_messages_total") == of_orders
            scheduler = await scrape(cluster.info.scheduler_url)
            assert scheduler.total("makeway_scheduler_panics_total") == 0
            assert scheduler.total("makeway_scheduler_ignored_messages_total") > 0
            await preempt_once(space, "after")
    finally:
        await connection.close()
        await bus.close()


async def assert_untouched(space: Space, uids: dict[str, str]) -> None:
    """Read pods and audit log: the evictor has deleted and marked the healthy orders' victims alone."""
    pods = await space.pods()
    for name, uid in uids.items():
        assert pods[name].metadata.uid == uid
        assert pods[name].metadata.deletion_timestamp is None
        assert "DisruptionTarget" not in {c.type for c in pods[name].status.conditions or ()}
    written = {
        (event.verb, event.name)
        for event in space.audit.events(user=EVICTOR_USER, resource="pods")
        if event.verb not in ("get", "list", "watch") and not event.name.startswith("v-")
    }
    # What a refused order's preemptor had in the way of a nomination is taken back.
    assert written <= {("patch", "urgent")}
