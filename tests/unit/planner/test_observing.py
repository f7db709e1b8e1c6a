"""What mode observe makes of decisions, of the pods' watch and of the time."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from background import turns
from builders_bus import plan_request
from makeway.bus.comparison import Comparison
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import OrderKind, VictimOutcome, VictimResult
from makeway.core.comparison import Share
from makeway.core.k8s.authorship import EVICTOR, ManagedPod
from makeway.core.k8s.disruption import preemption_message
from makeway.core.k8s.importance import microseconds, moment_of
from makeway.core.k8s.objects import Pod
from makeway.core.policy.facts import PodFacts
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.observe import loop as module
from makeway.planner.observe.loop import ObserveLoop
from makeway.planner.observe.loops import LOOP_AT_LEAST
from makeway.planner.observe.pairing import QUIET, WINDOW
from makeway.planner.observe.past import ShortPast
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.decision import Decision
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import Change, KnowPodGroups, PutBudget, PutPod, PutPodGroup, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a, there
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    NOW,
    XL,
    L,
    ask,
    make_budget,
    make_outcome,
    make_pod,
    make_snapshot,
)
from unit.planner.caching import plan
from unit.planner.grouping import pod_group

SCHEDULER = "default-scheduler"
P = make_pod("P", priority=HIGH, size=L)


class FakeBus:
    """Keeps what is published; says no as often as asked."""

    def __init__(self) -> None:
        self.comparisons: list[Comparison] = []
        self.failures = 0

    async def publish_comparison(self, comparison: Comparison) -> None:
        if self.failures:
            self.failures -= 1
            raise BusUnavailable("down")
        self.comparisons.append(comparison)


class Orders(Ledger):
    """Makeway's own orders, as a test says that they are."""

    def __init__(self) -> None:
        super().__init__()
        self.named: set[str] = set()
        self.serving: set[str] = set()
        self.are_read(True)

    def are_read(self, read: bool) -> None:
        """Let all orders have been read, or none."""
        self.read_until = math.inf if read else -math.inf

    def names(self, uid: str) -> bool:
        return uid in self.named

    def makes_room_for(self, uid: str) -> bool:
        return uid in self.serving


class Bench:
    """Mode observe over a snapshot, with a clock of its own."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = NOW
        self.snapshot = snapshot
        self.bus = FakeBus()
        self.registry = CollectorRegistry()
        self.past = ShortPast()
        self.ledger = Orders()
        self.observing = ObserveLoop(
            "planner-1",
            snapshot=snapshot,
            bus=self.bus,
            metrics=PlannerMetrics(self.registry),
            ledger=self.ledger,
            past=self.past,
            cluster_uid="cluster-1",
            now=lambda: self.now,
        )
        self.decisions = 0

    def apply(self, change: Change) -> None:
        self.snapshot.apply(change)
        self.past.note(change, self.snapshot.revision)

    def decide(self, pod: PodRecord = P, *, nominated: str = "", nodes: list[str] | None = None) -> None:
        self.decisions += 1
        question = ask(pod, nodes=nodes)
        manifest = {"metadata": {"uid": pod.uid}, "spec": {}, "status": {"nominatedNodeName": nominated}}
        request = plan_request(manifest, mode="observe", nodes=question.nodes)
        self.observing.expect(
            Decision(
                decision_id=f"dec-{self.decisions}",
                planner="planner-1",
                at=self.now,
                request=request,
                question=question,
                result=plan(self.snapshot, question, self.now),
                policy_revision="",
                duration_seconds=0.002,
            )
        )

    def nominate(self, node: str, uid: str = "P") -> None:
        self.observing.put(pod_object(uid, status={"nominatedNodeName": node}))

    def mark(self, *uids: str, by: str = "", group: str = "", priority: int | None = None) -> None:
        """Show that these are marked; `by`: the field manager, empty where the watch did not read it.

        `priority`: their own, where it is not their group's.
        """
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": preemption_message(SCHEDULER),
        }
        for uid in uids:
            record = self.snapshot.pods[uid]
            asked = {
                "cpu": f"{record.requests.get('cpu', 0)}m",
                "memory": str(record.requests.get("memory", 0)),
            }
            containers = [{"name": "main", "resources": {"requests": asked}}]
            spec: dict[str, Any] = {
                "nodeName": record.node,
                "priority": record.priority if priority is None else priority,
                "containers": containers,
            }
            if group:
                spec["schedulingGroup"] = {"podGroupName": group}
            status = {"conditions": [condition], "startTime": moment_of(record.start_micros)}
            self.observing.put(pod_object(uid, record.labels, by=by, spec=spec, status=status))

    def unmark(self, *uids: str) -> None:
        """Show that these live on, and are marked no more."""
        for uid in uids:
            self.observing.put(pod_object(uid, spec={"nodeName": self.snapshot.pods[uid].node}))

    def end(self, preemptor: str, victim: str, result: VictimResult, kind: OrderKind = "pod") -> None:
        """Let the planner read how one of makeway's own orders ended."""
        victims = (VictimOutcome(namespace="default", name=victim, uid=victim, result=result),)
        end = make_outcome(f"ord-{preemptor}", self.now, kind=kind, preemptor_uid=preemptor, victims=victims)
        self.observing.ended(end)

    async def told(self, span: timedelta = QUIET) -> list[Comparison]:
        """Let so much time pass; returns everything that was written by then."""
        self.now += span
        await turns(20, self.observing.poll_forever(), self.observing.write_forever())
        return self.bus.comparisons

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"makeway_planner_{name}_total", labels) or 0


def pod_object(uid: str, labels: Mapping[str, str] | None = None, *, by: str = "", **parts: Any) -> Pod:
    metadata: dict[str, Any] = {"namespace": "default", "name": uid, "uid": uid, "labels": dict(labels or {})}
    if by:
        owned: dict[str, Any] = {"f:conditions": {'k:{"type":"DisruptionTarget"}': {"f:reason": {}}}}
        fields = {"f:status": owned}
        metadata["managedFields"] = [{"manager": by, "subresource": "status", "fieldsV1": fields}]
    made = {"metadata": metadata, "spec": {}, "status": {}, **parts}
    return msgspec.convert(made, ManagedPod if by else Pod)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at each turn: the bench's clock says how late it is."""
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)


def two_nodes() -> Snapshot:
    """n1 can be helped by one pod of low priority, n2 by one of middle priority under a spent budget."""
    return make_snapshot(
        ["n1", "n2"],
        [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", MID, XL, labels={"app": "web"})],
        [make_budget("web", {"app": "web"}, 0)],
    )


async def test_another_choice_is_compared_on_the_cluster_as_the_plan_saw_it() -> None:
    bench = Bench(two_nodes())
    bench.decide()
    bench.snapshot.apply(PutBudget(make_budget("web", {"app": "web"}, 5)))  # too late to count

    bench.nominate("n2")
    bench.now += timedelta(milliseconds=40)
    bench.mark("b")

    (comparison,) = await bench.told()
    assert (comparison.result, comparison.decided_by) == ("better", "fewest-pdb-violations")
    assert comparison.makeway is not None
    assert comparison.default_preemption is not None
    assert comparison.makeway.node == "n1"
    assert [v.name for v in comparison.makeway.victims] == ["a"]
    theirs = comparison.default_preemption
    assert (theirs.node, [v.name for v in theirs.victims]) == ("n2", ["b"])
    assert (theirs.pdb_violations, theirs.highest_priority) == (1, MID)
    assert theirs.victims[0].pdb_violating
    lost = (comparison.makeway.lost_work_seconds, theirs.lost_work_seconds)
    size = XL * 1000 // L
    assert lost == (size * 86_460 // 1000, size * 86_460 // 1000), (
        "a day's and a start's, though the policy ranks not by it"
    )
    assert comparison.evicted_after_microseconds == 40_000
    assert bench.count("comparisons", result="better") == 1
    assert bench.count("compared_pdb_violations", choice="default") == 1
    assert bench.count("compared_pdb_violations", choice="makeway") == 0
    assert bench.count("compared_victims", choice="makeway") == 1


async def test_that_default_preemption_finds_nothing_is_said_once_for_all_tries() -> None:
    bench = Bench(two_nodes())
    for _ in range(3):
        bench.decide()
        await bench.told(WINDOW)

    (comparison,) = bench.bus.comparisons
    assert comparison.result == "makewayOnly"
    assert comparison.default_preemption is None


async def test_what_makeway_refuses_and_default_preemption_does_is_told_with_the_reason() -> None:
    bench = Bench(make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)]))
    bench.decide(nodes=[])
    bench.nominate("n1")
    bench.mark("a")

    (comparison,) = await bench.told()
    assert comparison.result == "defaultOnly"
    assert comparison.refusal is not None
    assert bench.count("compared_victims", choice="default") == 0


async def test_where_neither_finds_a_way_or_the_pod_finds_room_there_is_nothing_to_compare() -> None:
    bench = Bench(two_nodes())
    bench.decide(nodes=[])
    assert await bench.told(WINDOW) == []

    bench.decide()
    bench.observing.put(pod_object("P", spec={"nodeName": "n1"}))

    assert await bench.told(WINDOW) == []
    assert len(bench.observing) == 0


async def test_a_nomination_without_any_victim_decides_nothing() -> None:
    bench = Bench(two_nodes())
    bench.decide()
    bench.nominate("n2")

    (comparison,) = await bench.told()
    assert comparison.result == "undetermined"
    assert comparison.note


async def test_a_comparison_that_nats_does_not_take_is_counted() -> None:
    bench = Bench(two_nodes())
    bench.bus.failures = 1
    bench.decide()

    assert await bench.told(WINDOW) == []

    assert bench.count("comparison_records", result="failed") == 1


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    bench = Bench(two_nodes())
    bench.decide()
    bench.observing.retain(set())

    assert len(bench.observing) == 0


def unasked_preemptor(uid: str = "P", node: str = "n1", **spec: Any) -> Pod:
    requests = {"cpu": f"{L}m", "memory": str(L)}
    return pod_object(
        uid,
        spec={
            "schedulerName": SCHEDULER,
            "priority": HIGH,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
            **spec,
        },
        status={"nominatedNodeName": node},
    )


def following(snapshot: Snapshot) -> Bench:
    bench = Bench(snapshot)
    bench.observing.following = True
    return bench


async def planned(bench: Bench) -> None:
    await turns(20, bench.observing.plan_forever())


@pytest.mark.parametrize("first", ["mark", "nomination"])
async def test_a_preemption_that_no_scheduler_asked_about_is_compared(first: str) -> None:
    bench = following(two_nodes())

    if first == "mark":
        bench.mark("a")
    bench.observing.put(unasked_preemptor())
    if first == "nomination":
        bench.mark("a")
    await planned(bench)
    (comparison,) = await bench.told()

    assert comparison.result == "same"
    assert not comparison.asked
    assert comparison.preemptor.name == "P"
    assert [victim.name for victim in there(comparison.default_preemption).victims] == ["a"]


@pytest.mark.parametrize("read", ["before", "after"])
async def test_a_preemption_is_compared_though_the_plan_its_scheduler_asked_for_is_late(read: str) -> None:
    bench = following(two_nodes())
    bench.observing.put(unasked_preemptor())
    bench.ledger.are_read(read == "before")
    bench.mark("a")

    bench.now += timedelta(milliseconds=50)
    bench.decide()
    bench.ledger.are_read(True)
    bench.observing.put(pod_object("P", spec={"nodeName": "n1"}))
    bench.observing.orders_read()
    await planned(bench)
    (comparison,) = await bench.told()

    assert comparison.result == "same"
    assert not comparison.asked
    assert [victim.name for victim in there(comparison.default_preemption).victims] == ["a"]


async def test_a_question_answered_after_the_unasked_plan_of_its_cycle_is_compared_once() -> None:
    bench = following(crowded())
    bench.observing.put(unasked_preemptor())
    bench.mark("a1")
    await planned(bench)

    bench.now += timedelta(milliseconds=50)
    bench.decide()
    bench.now += timedelta(milliseconds=50)
    bench.mark("a2")
    (comparison,) = await bench.told()

    assert comparison.result == "same"
    assert not comparison.asked
    assert bench.count("compared_victims", choice="default") == 2


async def test_a_question_of_the_cycle_after_an_unasked_preemption_is_compared_by_itself() -> None:
    bench = following(crowded())
    bench.observing.put(unasked_preemptor())
    bench.mark("a1")
    await planned(bench)

    bench.now += timedelta(milliseconds=50)
    bench.decide(nominated="n1")
    bench.now += timedelta(milliseconds=50)
    bench.mark("a2")
    comparisons = await bench.told()

    assert [one.asked for one in comparisons] == [False, True]
    assert bench.count("compared_victims", choice="default") == 2


def crowded() -> Snapshot:
    """One node that can be helped by both of its pods."""
    return make_snapshot(["n1"], [make_pod(uid, "n1", LOW, 250) for uid in ("a1", "a2")])


async def test_a_victim_that_has_left_meanwhile_counts_as_being_there_for_the_plan() -> None:
    bench = following(two_nodes())
    bench.mark("b")
    bench.snapshot.apply(RemovePod("b"))

    bench.observing.put(unasked_preemptor(node="n2"))
    await planned(bench)
    (comparison,) = await bench.told()

    assert comparison.restored_pods == 1
    assert (there(comparison.makeway).node, comparison.result) == ("n1", "better")
    assert there(comparison.default_preemption).node == "n2"


async def test_budgets_count_as_they_were_before_the_first_mark() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL, labels={"app": "web"})])
    bench = following(snapshot)
    bench.apply(PutBudget(make_budget("web", {"app": "web"}, 1)))
    bench.mark("a")
    bench.snapshot.apply(RemovePod("a"))
    bench.apply(PutBudget(make_budget("web", {"app": "web"}, 0)))

    bench.observing.put(unasked_preemptor())
    await planned(bench)
    (comparison,) = await bench.told()

    assert comparison.result == "same"
    for choice in (comparison.makeway, comparison.default_preemption):
        assert there(choice).pdb_violations == 0


async def test_a_planner_that_does_not_lead_compares_no_preemption_of_others() -> None:
    bench = Bench(two_nodes())

    bench.mark("a")
    bench.observing.put(unasked_preemptor())
    await planned(bench)

    assert await bench.told() == []


async def test_the_pod_of_an_own_order_is_never_told_as_the_preemptor() -> None:
    bench = following(two_nodes())
    bench.ledger.serving.add("P")

    bench.mark("a")
    bench.observing.put(unasked_preemptor())
    await planned(bench)

    assert await bench.told() == []


@pytest.mark.parametrize("kind", ["pod", "group"])
async def test_makeways_own_orders_count_for_loops_once_each_and_plans_are_held_back(kind: OrderKind) -> None:
    bench = following(make_snapshot(["n1"]))
    bench.apply(KnowPodGroups(True, True, True))
    for turn in range(LOOP_AT_LEAST + 1):
        assert bench.observing.loops() == 0
        web = make_pod(f"w{turn}", "n1", LOW, XL, facts=owned("web", bench.now + timedelta(seconds=1)))
        urgent = make_pod(f"P{turn}", "", HIGH, XL, facts=owned("urgent", bench.now))
        if kind == "group":
            urgent = msgspec.structs.replace(urgent, group="train")
            bench.apply(PutPodGroup(pod_group("train", whole=False, priority=HIGH, uid=f"G{turn}")))
        bench.apply(PutPod(web))
        bench.apply(PutPod(urgent))
        bench.now += timedelta(seconds=20)
        bench.ledger.named.add(web.uid)
        bench.observing.put(unasked_preemptor(urgent.uid))
        bench.mark(web.uid, by=EVICTOR)
        bench.apply(RemovePod(web.uid))
        bench.end(f"G{turn}" if kind == "group" else urgent.uid, web.uid, "deleted", kind)
        bench.apply(RemovePod(urgent.uid))

    assert bench.observing.loops() == 1
    assert f"pods like default/w{LOOP_AT_LEAST} are preempted again" in bench.observing.told_loops()
    snapshot = make_snapshot(["n1"], [make_pod("next", "n1", LOW, XL, facts=owned("web", bench.now))])
    planned = as_a(Plan, plan(snapshot, ask(make_pod("Q", priority=HIGH, size=L)), bench.now))
    preemptor = make_pod("Q", priority=HIGH, size=L, facts=owned("urgent", bench.now))
    assert isinstance(bench.observing.hold_back([preemptor], planned, bench.now), PlanRefusal)
    assert await bench.told(WINDOW) == [], "they are not preemptions by others"


async def test_orders_for_a_group_whose_members_have_two_owners_count_for_one_of_these() -> None:
    """Each of the two has the lower UID in every other turn."""
    bench = following(make_snapshot(["n1"], groups=[pod_group("train", whole=False, priority=HIGH, uid="G")]))
    for turn in range(LOOP_AT_LEAST + 1):
        assert bench.observing.loops() == 0
        bench.apply(
            PutPod(make_pod(f"w{turn}", "n1", LOW, XL, facts=owned("web", bench.now + timedelta(seconds=1))))
        )
        owners = ("leader", "workers") if turn % 2 else ("workers", "leader")
        members = [
            make_pod(f"{uid}{turn}", "", HIGH, XL, facts=owned(owner, bench.now), group="train")
            for uid, owner in zip(("a", "b"), owners, strict=True)
        ]
        for one in members:
            bench.apply(PutPod(one))
        bench.now += timedelta(seconds=20)
        bench.end("G", f"w{turn}", "deleted", "group")
        for one in members:
            bench.apply(RemovePod(one.uid))

    assert bench.observing.loops() == 1


async def test_victims_that_an_own_order_did_not_delete_count_for_no_loop() -> None:
    bench = following(make_snapshot(["n1"]))
    bench.apply(PutPod(make_pod("P", "", HIGH, XL, facts=owned("urgent", bench.now))))
    for turn in range(3 * LOOP_AT_LEAST):
        bench.apply(PutPod(make_pod(f"w{turn}", "n1", LOW, XL, facts=owned("web", bench.now))))
        bench.now += timedelta(seconds=20)
        bench.end("P", f"w{turn}", "failed")

    assert bench.observing.loops() == 0


def owned(owner: str, created: datetime) -> PodFacts:
    return PodFacts(owners=(owner,), created_micros=microseconds(created))


async def test_a_victim_that_goes_with_its_group_is_told_on_the_node_where_it_runs() -> None:
    bench = Bench(unit_on_two_nodes())

    bench.decide(nodes=["n1"])
    bench.nominate("n1")
    bench.mark("a", group="train")

    (comparison,) = await bench.told()
    assert comparison.makeway is not None
    assert comparison.makeway.node == "n1"
    assert {(victim.name, victim.node) for victim in comparison.makeway.victims} == {("a", "n1"), ("b", "n2")}


async def test_what_others_evict_with_a_group_on_other_nodes_belongs_to_the_pod_as_well() -> None:
    bench = Bench(unit_on_two_nodes())

    bench.decide(nodes=["n1"])
    bench.nominate("n1")
    bench.mark("b", "a", group="train")

    (comparison,) = await bench.told()
    assert comparison.result == "same"
    assert there(comparison.default_preemption).groups_broken == 0


async def test_a_victim_counts_at_the_priority_of_its_group() -> None:
    bench = Bench(unit_on_two_nodes())

    bench.decide(nodes=["n1"])
    bench.nominate("n1")
    bench.mark("a", "b", group="train", priority=HIGH)

    (comparison,) = await bench.told()
    assert comparison.result == "same"
    assert there(comparison.default_preemption).highest_priority == LOW


def unit_on_two_nodes(*others: PodRecord) -> Snapshot:
    """A group that goes whole has a pod on n1 and one on n2; n3 has other pods."""
    members = [make_pod(uid, node, LOW, XL, group="train") for uid, node in (("a", "n1"), ("b", "n2"))]
    return make_snapshot(["n1", "n2", "n3"], [*others, *members], groups=[pod_group("train")])


async def test_a_group_that_others_broke_and_the_plan_spares_is_counted() -> None:
    bench = Bench(unit_on_two_nodes(make_pod("c", "n3", MID, XL)))

    bench.decide(nodes=["n1", "n3"])
    bench.nominate("n1")
    bench.mark("a", group="train")

    (comparison,) = await bench.told()
    ours, theirs = comparison.makeway, comparison.default_preemption
    assert theirs is not None
    assert ours is not None
    assert [victim.name for victim in theirs.victims] == ["a"]
    assert (theirs.groups_broken, ours.groups_broken) == (1, 0)
    assert bench.count("compared_groups_broken", choice="default") == 1
    assert bench.count("compared_groups_broken", choice="makeway") == 0


def test_a_gang_can_spare_what_is_above_its_min_count_and_is_not_broken_twice() -> None:
    snapshot = make_snapshot(["n1"], groups=[pod_group("gang", whole=False, min_count=2)])
    found = []
    for pod in (make_pod(uid, "n1", LOW, group="gang") for uid in "abc"):
        snapshot.apply(PutPod(pod))
        found.append(snapshot.groups.share_of(pod))

    name = "PodGroup default/gang"
    assert found == [None, Share(name, 2), Share(name, 3, 1)]
    assert snapshot.groups.share_of(make_pod("alone", "n1")) is None
