"""What observing makes of preemptions for pod groups."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from background import background, turns
from makeway.bus.comparison import Comparison
from makeway.bus.messages import API_VERSION
from makeway.bus.plan import GroupPreemptor, PlanRequest, Profile
from makeway.core.k8s.disruption import preemption_message
from makeway.core.policy.facts import PodFacts
from makeway.planner.observe import unasked
from makeway.planner.observe.comparing import UNSEEN
from makeway.planner.observe.loops import PreemptionLoops
from makeway.planner.observe.pairing import WINDOW
from makeway.planner.observe.unasked import MEMBERS_A_TURN, reading_members
from makeway.planner.plan.decision import decision_of
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.request import Question, question_of
from makeway.planner.snapshot.changes import PutPod, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import there
from unit.planner.building import HIGH, LOW, XL, ask, make_pod, make_snapshot
from unit.planner.grouping import pod_group
from unit.planner.test_observing import SCHEDULER, Bench, looks, pod_object

MEMBERS = ("g0", "g1")

__all__ = ["looks"]  # for every test here as well


def member(uid: str, node: str = "") -> Any:
    return make_pod(uid, node, HIGH, XL, name=uid)


def cluster() -> Snapshot:
    """Two nodes with a large pod each, and two with five small ones; a gang of two waits."""
    small = [make_pod(f"s{n}", "n3" if n < 5 else "n4", LOW, 100) for n in range(10)]
    large = [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", LOW, XL)]
    train = pod_group("train", whole=False, priority=HIGH, min_count=2, uid="G")
    pods = [*large, *small, *map(member, MEMBERS)]
    return make_snapshot(["n1", "n2", "n3", "n4"], pods, groups=[train])


class Groups(Bench):
    """A bench on which a gang of two is planned for."""

    def decide_group(self, *, must: int = 2, classes: tuple[GangClass, ...] = ()) -> None:
        self.decisions += 1
        asked = classes or (GangClass(ask(self.snapshot.pods["g0"]), 2),)
        question = GangQuestion("default/train", asked, must)
        request = PlanRequest(
            api_version=API_VERSION,
            request_id="req-1",
            cluster_uid="cluster-1",
            mode="observe",
            timeout_milliseconds=100,
            profile=Profile(name=SCHEDULER),
            group=GroupPreemptor(namespace="default", name="train", uid="G", priority=HIGH),
            classes=(),
            must_place=must,
        )
        self.observing.expect(
            decision_of(
                self.snapshot,
                request,
                question,
                plan_gang(self.snapshot, question, self.now),
                decision_id=f"dec-{self.decisions}",
                planner="planner-1",
                at=self.now,
            )
        )

    def place(self, bound: bool = False, **nodes: str) -> None:
        """Show where others nominate members, or bind them."""
        for uid, node in nodes.items():
            spec = {
                "schedulerName": SCHEDULER,
                "priority": HIGH,
                "schedulingGroup": {"podGroupName": "train"},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
            }
            status = {} if bound else {"nominatedNodeName": node}
            if bound:
                spec["nodeName"] = node
            self.observing.put(pod_object(uid, spec=spec, status=status))

    def mark_for_group(self, *uids: str) -> None:
        message = preemption_message(SCHEDULER, for_group=True)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
        }
        for uid in uids:
            record = self.snapshot.pods[uid]
            spec = {"nodeName": record.node, "priority": record.priority}
            self.observing.put(pod_object(uid, spec=spec, status={"conditions": [condition]}))

    async def planned(self, span: timedelta = timedelta()) -> list[Comparison]:
        """Let so much time pass, and plans be made."""
        async with background(self.observing.plan_forever()):
            await self.told(span)
            await turns(50)
        return self.bus.comparisons


async def test_a_plan_for_a_group_is_compared_with_what_was_evicted_for_it() -> None:
    bench = Groups(cluster())
    bench.decide_group()
    bench.mark_for_group("a", *(f"s{n}" for n in range(5)))
    bench.place(g0="n1", g1="n3")

    (found,) = await bench.told()

    assert (found.result, found.decided_by, found.asked) == (
        "better",
        "fewest-highest-priority-victims",
        True,
    )
    assert (found.preemptor.name, found.preemptor.uid, found.preemptor.priority) == ("train", "G", HIGH)
    assert found.group is not None
    assert (found.group.members, found.group.must_place) == (2, 2)
    assert found.makeway is not None
    assert found.makeway.nodes == ("n1", "n2")
    assert {victim.name for victim in found.makeway.victims} == {"a", "b"}
    assert found.default_preemption is not None
    assert found.default_preemption.nodes == ("n1", "n3")
    assert len(found.default_preemption.victims) == 6
    assert bench.count("compared_victims", choice="default") == 6


@pytest.mark.parametrize("turn", [1, -1])
async def test_one_owner_of_a_groups_members_counts_for_loops_whichever_class_is_first(
    turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = set[tuple[str, ...]]()

    def preempted(_: PreemptionLoops, preemptor: PodRecord, *_more: object) -> bool:
        counted.add(preemptor.facts.owners)
        return False

    monkeypatch.setattr(PreemptionLoops, "preempted", preempted)
    snapshot = cluster()
    facts = [PodFacts(priority=HIGH, owners=(owner,)) for owner in ("workers", "leader")]
    for uid, its in zip(MEMBERS, facts, strict=True):
        snapshot.apply(PutPod(replace(snapshot.pods[uid], facts=its)))
    bench = Groups(snapshot)
    bench.decide_group(classes=tuple(GangClass(ask(snapshot.pods[uid]), 1) for uid in MEMBERS[::turn]))
    bench.mark_for_group("a", "b")

    await bench.told(WINDOW)

    assert counted == {("leader",)}


async def test_a_victim_where_no_member_goes_belongs_to_the_group_too() -> None:
    bench = Groups(cluster())
    bench.decide_group()
    bench.place(g0="n1", g1="n2")
    bench.mark_for_group("a", "b", "s9")

    (found,) = await bench.told()

    assert (found.result, found.decided_by) == ("better", "fewest-highest-priority-victims")
    assert "s9" in {victim.name for victim in there(found.default_preemption).victims}


async def test_a_group_that_finds_room_without_evictions_is_not_compared() -> None:
    bench = Groups(cluster())
    bench.decide_group()
    bench.place(bound=True, g0="n1", g1="n2")

    assert await bench.told(WINDOW) == []


async def test_a_mark_for_a_pod_is_no_sign_of_a_group() -> None:
    bench = Groups(cluster())
    bench.decide_group()
    bench.place(g0="n1", g1="n2")
    bench.mark("a", "b")

    (found,) = await bench.told()

    assert (found.result, found.note != "") == ("undetermined", True)


async def test_victims_of_makeways_own_orders_are_left_out() -> None:
    bench = Groups(cluster())
    bench.ledger.named = {"a", "b"}
    bench.decide_group()
    bench.mark_for_group("a", "b")

    (found,) = await bench.told(WINDOW)

    assert found.result == "makewayOnly"


@pytest.mark.parametrize("asked", [True, False])
async def test_marks_of_makeways_own_order_that_failed_are_no_preemption_by_others(*, asked: bool) -> None:
    bench = Groups(cluster())
    bench.observing.following = True
    if asked:
        bench.decide_group()
    bench.ledger.named = {"a", "b"}
    bench.mark_for_group("a", "b")
    bench.place(g0="n1", g1="n2")

    await bench.planned()

    assert [found.note for found in await bench.told(WINDOW)] == ([UNSEEN] if asked else [])


async def test_of_two_plans_a_mark_belongs_to_the_one_that_would_take_it_and_is_shared() -> None:
    bench = Groups(cluster())
    bench.decide_group()
    bench.place(g0="n1", g1="n2")
    bench.mark_for_group("a", "b")
    bench.decide_group()

    first, *_ = await bench.told()

    assert first.decision_id == "dec-1"
    assert first.result == "same"


async def test_a_preemption_that_no_scheduler_asked_about_is_planned_for_as_of_before_it() -> None:
    bench = Groups(cluster())
    bench.observing.following = True
    bench.mark_for_group("a", *(f"s{n}" for n in range(5)))
    bench.apply(RemovePod("a"))
    bench.place(g0="n1", g1="n3")

    assert await bench.planned() == []
    (found,) = await bench.told()

    assert (found.result, found.decided_by, found.asked) == (
        "better",
        "fewest-highest-priority-victims",
        False,
    )
    assert found.restored_pods == 1
    assert found.group is not None
    assert (found.group.members, found.group.must_place) == (2, 2)
    assert "schedulingConstraints" in found.left_to_verification
    assert {victim.name for victim in there(found.makeway).victims} == {"a", "b"}
    assert there(found.default_preemption).nodes == ("n1", "n3")


async def test_members_that_run_already_are_planned_for_as_if_they_waited() -> None:
    bench = Groups(cluster())
    bench.observing.following = True
    bench.mark_for_group("a", "b")
    bench.place(g0="n1", g1="n2")
    for uid, node in (("a", "n1"), ("b", "n2")):
        bench.apply(RemovePod(uid))
        bench.apply(PutPod(member(f"g{'ab'.index(uid)}", node)))
    bench.place(bound=True, g0="n1", g1="n2")

    await bench.planned()
    (found,) = await bench.told()

    assert (found.result, found.restored_pods) == ("same", 2)


async def test_members_without_a_nomination_are_waited_for_a_second() -> None:
    bench = Groups(cluster())
    for uid in MEMBERS:
        bench.apply(PutPod(replace(bench.snapshot.pods[uid], group="train")))
    bench.observing.following = True
    bench.mark_for_group("a")
    bench.place(g0="n1")

    await bench.planned()
    waits = len(bench.observing)
    await bench.planned(timedelta(seconds=1))

    assert (waits, len(bench.observing)) == (0, 1)


def test_members_are_read_so_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def count(*args: Any) -> Question:
        read[-1] += 1
        return question_of(*args)

    monkeypatch.setattr(unasked, "question_of", count)
    spec = {"schedulerName": SCHEDULER, "containers": [{"name": "c"}]}
    pods = (pod_object(f"g{n}", {"index": f"{n}"}, spec=spec) for n in range(3 * MEMBERS_A_TURN + 1))
    steps = reading_members(pods, cluster_uid="cluster-1", request_id="req-1")

    classes = None
    while classes is None:
        read.append(0)
        classes = next(steps)

    assert [many for many in read if many] == [MEMBERS_A_TURN] * 3 + [1]
    assert len(read) == 3 + 3 + 1  # and as often while they are put into classes
    assert [one.count for one in classes] == [3 * MEMBERS_A_TURN + 1]


async def test_what_changes_while_members_are_read_is_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unasked, "MEMBERS_A_TURN", 1)
    bench = Groups(cluster())
    bench.observing.following = True
    bench.mark_for_group("a", "b")
    bench.place(g0="n1", g1="n2")
    await bench.told(timedelta())
    async with background(bench.observing.plan_forever()):
        await turns(1)

        bench.nominate("n4", uid="another")
        bench.apply(RemovePod("a"))
        await turns(50)
    (found,) = await bench.told()

    assert (found.result, found.restored_pods) == ("same", 1)
