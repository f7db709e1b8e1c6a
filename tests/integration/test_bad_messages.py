"""Bad messages on every subject: counted, put aside where they can be seen, and in nobody's way.

No process ends, nobody is evicted, marked or deleted for one, and a healthy preemption among them takes at
most a second longer. The short form sends everything once; the long one a hundred times over.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import nats
import pytest
from typer.testing import CliRunner

from builders_bus import make_decision, make_outcome
from integration.builders import make_node, make_pod
from integration.conftest import PrivateCluster
from integration.preempting import EVICTOR_USER, outcome_of_order, run_victims
from integration.scraping import scrape
from integration.space import Space, open_space
from integration.waiting import NotYet, until, until_seen
from makeway.bus import codec, ids
from makeway.bus.control import ControlState
from makeway.bus.messages import Awaited, EvictionOrder, Fence, Preemptor, Victim
from makeway.cli.mode.breaker import app as breaker
from makeway.core.k8s.objects import Pod
from makeway.dev.options import ClusterOptions

SERVICES = ("planner", "evictor", "scheduler")
HELD = "tests.makeway.dev/held"
PREFIX = "makeway.v1"


@dataclass(frozen=True)
class Bad:
    """A message and what must become of it: put aside for a reason, or ended with a result and a reason."""

    name: str
    subject: str
    data: bytes
    parked: str = ""
    outcome: tuple[str, str] = ("", "")
    order_id: str = ""


class Forger:
    """Makes orders of what is really there, each wrong in one way."""

    def __init__(
        self, space: Space, cluster_uid: str, epoch: int, pods: dict[str, Pod], node_uid: str
    ) -> None:
        self.space = space
        self.pods = pods
        self.cluster_uid = cluster_uid
        self.node_uid = node_uid
        self.epoch = epoch

    def order(self, *victims: str, **changes: Any) -> EvictionOrder:
        now = datetime.now(UTC)
        held = self.pods["held"].metadata
        fields: dict[str, Any] = {
            "order_id": ids.order_id(now),
            "kind": "pod",
            "cluster_uid": self.cluster_uid,
            "fence": Fence(kind="lease", namespace="kube-system", name="makeway-scheduler", epoch=self.epoch),
            "writer": "makeway/scheduler/forger",
            "created_at": now,
            "not_after": now + timedelta(seconds=30),
            "preemptor": Preemptor(
                namespace=held.namespace, name=held.name, uid=held.uid, priority=2**31 - 1, scheduler_name="x"
            ),
            "node": self.space.node_name("n1"),
            "node_uid": self.node_uid,
            "victims": tuple(self.victim(name) for name in victims),
        }
        return EvictionOrder(**fields | changes)

    def victim(self, known_as: str, /, **changes: Any) -> Victim:
        pod = self.pods[known_as].metadata
        fields: dict[str, Any] = {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "node": self.space.node_name("n1"),
            "priority": -(2**31),
            "grace_period_seconds": 0,
            "rule": "lower-priority",
        }
        return Victim(**fields | changes)

    def orders(self) -> Iterator[Bad]:
        """Orders that can be read and must not be carried out."""

        def bad(name: str, order: EvictionOrder, result: str, reason: str) -> Bad:
            assert order.preemptor
            subject = f"{PREFIX}.orders.pod.{order.preemptor.uid}"
            return Bad(
                name,
                subject,
                codec.wrap(order, "makeway/scheduler/forger"),
                "",
                (result, reason),
                order.order_id,
            )

        now = datetime.now(UTC)
        ghost = Preemptor(
            namespace=self.space.namespace, name="ghost", uid="ghost", priority=9, scheduler_name="x"
        )
        yield bad("late", self.order("low", not_after=now - timedelta(seconds=1)), "expired", "expired")
        yield bad("of another cluster", self.order("low", cluster_uid="another"), "refused", "other-cluster")
        older = Fence(kind="lease", namespace="kube-system", name="makeway-scheduler", epoch=self.epoch - 1)
        yield bad("of an older epoch", self.order("low", fence=older), "refused", "stale-epoch")
        nowhere = Fence(kind="lease", namespace="kube-system", name="nobodys", epoch=9)
        yield bad("fenced by nothing", self.order("low", fence=nowhere), "refused", "fence-unknown")
        later = msgspec.structs.replace(older, epoch=self.epoch + 1)
        yield bad("of an epoch to come", self.order("low", fence=later), "refused", "future-epoch")
        counted = Fence(kind="kv", name="somebodys", epoch=0)
        yield bad(
            "fenced by a counter of its own", self.order("low", fence=counted), "refused", "fence-unknown"
        )
        yield bad("equal priority", self.order("equal"), "refused", "victim-spared")
        yield bad("a system pod", self.order("system"), "refused", "victim-spared")
        yield bad("a pod of another node", self.order("elsewhere"), "refused", "victim-spared")
        yield bad("the preemptor itself", self.order("held"), "refused", "victim-spared")
        yield bad("one good, one protected", self.order("low", "system"), "refused", "victim-spared")
        yield bad("no such preemptor", self.order("low", preemptor=ghost), "cancelled", "preemptor-gone")
        yield bad("no such node", self.order("low", node="nowhere"), "cancelled", "nomination-moved")
        yield bad("another node's uid", self.order("low", node_uid="forged"), "cancelled", "node-gone")
        yield bad(
            "no end", self.order("low", not_after=now + timedelta(days=9)), "refused", "not-after-too-far"
        )
        yield bad(
            "a path for a name",
            self.order(victims=(self.victim("low", name="../../nodes"),)),
            "refused",
            "invalid-name",
        )
        awaited = (Awaited(uid="x", order_id="ord-none"),)
        soon = now + timedelta(seconds=8)
        yield bad("awaits nothing", self.order("low", awaited=awaited, not_after=soon), "expired", "expired")
        # Nothing has to go for it: it may succeed, and deletes nothing.
        forged = tuple(self.victim("low", uid=f"forged-{n}") for n in range(3))
        yield bad("forged uids", self.order(victims=forged), "succeeded", "")

    def unreadable(self, source: random.Random) -> Iterator[Bad]:
        """What cannot be read, or stands where it does not belong."""
        good = codec.wrap(self.order("low"), "makeway/scheduler/forger")
        kinds = {
            "random bytes": (source.randbytes(200), "not-json"),
            "empty": (b"", "not-json"),
            "cut": (good[:-7], "not-json"),
            "another shape": (b'{"orderId":["a"]}', "invalid"),
            "a list": (b"[1,2,3]", "invalid"),
            "another version": (good.replace(b"order.v1", b"order.v2"), "unknown-version"),
            "another kind": (codec.wrap(make_decision(), "makeway/planner/x"), "unknown-type"),
            "someone else's": (good.replace(b"dev.makeway.order.v1", b"com.example.a"), "unknown-type"),
            "deeply nested": (b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too-deep"),
            "huge": (good[:-1] + b',"x":"' + b"x" * 900_000 + b'"', "not-json"),
            "wrong subject": (good, "wrong-subject"),
        }
        for name, (data, reason) in kinds.items():
            # A subject of its own each: a stream keeps a few messages of one.
            subject = f"{PREFIX}.orders.pod.rubbish-{source.randrange(10**9)}"
            yield Bad(name, subject, data, parked=reason)
        yield Bad("a hostile subject", f"{PREFIX}.orders.pod.\x1b[31m", b"{", parked="not-json")
        outcomes = {
            "random bytes": (source.randbytes(100), "not-json"),
            "another version": (
                codec.wrap(make_outcome(self.order()), "x/y").replace(b"outcome.v1", b"outcome.v9"),
                "unknown-version",
            ),
            "wrong subject": (codec.wrap(make_outcome(self.order()), "makeway/evictor/x"), "wrong-subject"),
        }
        for name, (data, reason) in outcomes.items():
            yield Bad(
                f"outcome: {name}",
                f"{PREFIX}.outcomes.rubbish-{source.randrange(10**9)}",
                data,
                parked=reason,
            )

    def harmless(self, source: random.Random) -> Iterator[Bad]:
        """Rubbish where nobody acts on it: plan requests, decisions, control, the quarantine itself."""
        for junk in (
            b"",
            b"{",
            b"[]",
            source.randbytes(99),
            b"[" * 99_999,
            b"null",
            b'{"apiVersion":"makeway.dev/v2"}',
        ):
            for subject in ("plan", "control", "decisions.pod.rubbish", "quarantine.evictor"):
                yield Bad("junk", f"{PREFIX}.{subject}", junk)
        yield Bad(
            "control",
            f"{PREFIX}.control",
            codec.wrap(
                ControlState(revision=2**62, mode="off", cluster_uid="x"), "x/y", at=datetime.now(UTC)
            ),
        )


async def forger_in(space: Space) -> Forger:
    """Two nodes; on the first pods of low, equal and system priority; and a preemptor held back."""
    (node, _) = await space.add_nodes(make_node("n1").cpu("1"), make_node("n2").cpu("1"))
    await space.run(
        make_pod("low").priority("low").cpu("100m").on("n1"),
        make_pod("equal").priority("high").cpu("100m").on("n1"),
        make_pod("system").priority("system-node-critical").cpu("100m").on("n1"),
        make_pod("elsewhere").priority("low").cpu("100m").on("n2"),
    )
    await space.create(make_pod("held").priority("high").cpu("1").spec(schedulingGates=[{"name": HELD}]))
    found = json.loads(await space.api.request("GET", f"/api/v1/nodes/{node}"))
    lease = json.loads(
        await space.api.request(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/makeway-scheduler"
        )
    )
    return Forger(
        space,
        await space.api.cluster_uid(),
        lease["spec"].get("leaseTransitions", 0),
        await space.pods(),
        found["metadata"]["uid"],
    )


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


async def unreadable(space: Space, *arguments: str) -> str:
    """Call `makeway history --unreadable`."""
    code = "from makeway.cli.main import main; main()"
    command = [sys.executable, "-c", code, "history", "--unreadable"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        "--nats-url",
        space.cluster.info.nats_url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def parked(space: Space) -> Counter[str]:
    found = json.loads(await unreadable(space, "-o", "json"))
    return Counter(one["reason"] for one in found)


async def bad_messages_do_no_harm(private_cluster: PrivateCluster, repeat: int) -> None:
    # What is not signed is taken, so that it meets what each part checks by itself.
    cluster = await private_cluster(ClusterOptions(fallback=False, signatures="log"))
    source = random.Random(repeat)
    async with open_space(cluster) as space:
        # Forged orders have no writer that keeps its promises, so the checker has nothing to judge by.
        space.judged = False
        forger = await forger_in(space)
        usual = await preempt_once(space, "before")
        pids = {name: cluster.process(name).pid for name in SERVICES}
        connection = await nats.connect(cluster.info.nats_url)
        sent: list[Bad] = []
        slowest = 0.0
        try:
            jetstream = connection.jetstream()
            for run in range(repeat):
                batch = [*forger.unreadable(source), *forger.orders(), *forger.harmless(source)]
                source.shuffle(batch)
                among = asyncio.create_task(preempt_once(space, f"among-{run}"))
                for bad in batch:
                    if bad.order_id:
                        # Each finds the preemptor waiting for the node, and comes again after its end. They
                        # share that preemptor: the end of one takes back what the next would find.
                        await nominate(space)
                        await jetstream.publish(bad.subject, bad.data)
                        await ended(space, bad)
                        await jetstream.publish(bad.subject, bad.data)
                    else:
                        await connection.publish(bad.subject, bad.data)
                sent += batch
                slowest = max(slowest, await among)
                # So many forged orders open the breaker, after which no order is looked at.
                await asyncio.to_thread(
                    CliRunner().invoke, breaker, ["reset", f"--kubeconfig={cluster.info.kubeconfig}"]
                )
        finally:
            await connection.close()

        for bad in sent:
            if bad.order_id:
                await ended(space, bad)
        expected = Counter(bad.parked for bad in sent if bad.parked)

        await until_seen(
            "all is in quarantine", lambda: parked(space), lambda found: found == expected, every=0.5
        )
        assert slowest < usual + 1.0
        assert {name: cluster.process(name).pid for name in SERVICES} == pids
        await assert_untouched(space, forger)
        evictor = await scrape(cluster.info.evictor_url)
        assert evictor.total("makeway_evictor_defects_total") == 0
        assert evictor.total("makeway_evictor_parked_messages_total") == sum(
            1 for bad in sent if bad.parked and ".orders." in bad.subject
        )
        scheduler = await scrape(cluster.info.scheduler_url)
        assert scheduler.total("makeway_scheduler_panics_total") == 0
        assert scheduler.total("makeway_scheduler_ignored_messages_total") > 0
        await look(space)
        await preempt_once(space, "after")


async def nominate(space: Space) -> None:
    """Let the held preemptor wait for the node, as an order's would."""
    await space.patch("held", {"status": {"nominatedNodeName": space.node_name("n1")}}, "status")


async def ended(space: Space, bad: Bad) -> None:
    """Wait for the one outcome of a forged order."""

    async def outcome() -> bool:
        found = await space.bus.outcomes(bad.order_id)
        if not found:
            raise NotYet("no outcome")
        assert [(o.result, o.reason) for o in found] == [bad.outcome], (bad.name, found)
        return True

    await until(f"the outcome of {bad.name}", outcome)


async def assert_untouched(space: Space, forger: Forger) -> None:
    """Read pods and audit log: the evictor has deleted and marked the healthy orders' victims alone."""
    pods = await space.pods()
    for name in ("low", "equal", "system", "elsewhere", "held"):
        assert pods[name].metadata.uid == forger.pods[name].metadata.uid
        assert pods[name].metadata.deletion_timestamp is None
        assert "DisruptionTarget" not in {c.type for c in pods[name].status.conditions or ()}
    written = {
        (event.verb, event.name)
        for event in space.audit.events(user=EVICTOR_USER, resource="pods")
        if event.verb not in ("get", "list", "watch") and not event.name.startswith("v-")
    }
    # What a refused order's preemptor had in the way of a nomination is taken back.
    assert written <= {("patch", "held")}


async def look(space: Space) -> None:
    """What people see of what is really there."""
    found = json.loads(await unreadable(space, "-o", "json"))
    hostile = next(one for one in found if "x1b" in one["subject"])
    assert hostile["reason"] == "not-json"
    shown = await unreadable(space, "-o", "wide")
    assert "not-json" in shown
    assert "\x1b" not in shown


async def test_bad_messages_on_every_subject_do_no_harm(private_cluster: PrivateCluster) -> None:
    await bad_messages_do_no_harm(private_cluster, 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_bad_messages_on_every_subject_do_no_harm_again_and_again(
    private_cluster: PrivateCluster,
) -> None:
    await bad_messages_do_no_harm(private_cluster, 20)
