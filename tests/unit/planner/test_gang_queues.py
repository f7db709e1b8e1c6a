"""Plans for pod groups in queues: a maximum holds for all members, beside what others were promised."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pytest

from makeway.bus.messages import Placement
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.policy.document import Policy, Protection
from makeway.core.queues.placement import QueuePlacement, place
from makeway.core.queues.tree import QueueTree
from makeway.planner.commit.removable import removable_pods
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.refusal.text import NO_ROOM, REFUSED_AGAIN
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.snapshot.changes import Enforce, PutPod
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import HIGH, LOW, NOW, ask, make_pod
from unit.planner.test_gang_plan import planned, refused
from unit.planner.test_queue_rules import pod, snapshot_of


def four_nodes(most: int) -> Snapshot:
    """Return nodes that are full of pods of another queue; queue `root.a` may hold so much CPU."""
    built = tree(queue("a", maximum={"cpu": most}), queue("b"))
    others = [pod(f"b{number}", "root.b", f"n{number}", size=500) for number in range(1, 5)]
    return snapshot_of(built, *others, nodes=4)


def gang(snapshot: Snapshot, members: int, **more: Any) -> GangQuestion:
    """Ask for a gang of queue `root.a` whose members need a node each."""
    member = pod("m", "root.a", priority=HIGH, size=500)
    snapshot.apply(PutPod(member))
    return GangQuestion("default/gang", (GangClass(ask(member, **more), members),), members)


def nominated(snapshot: Snapshot, priority: int = HIGH) -> list[tuple[str, str]]:
    """Have two pods of the queue nominated: a live order makes room for them."""
    places = []
    for number in (1, 2):
        other = pod(f"first-{number}", "root.a", priority=priority, size=500)
        snapshot.apply(PutPod(other))
        places.append((other.uid, f"n{number}"))
    return places


@pytest.mark.parametrize(
    ("sizes", "most", "placeable"), [((500,), 1499, 2), ((500, 400), 1799, 3), ((500, 0), 499, 2)]
)
def test_a_gang_that_no_empty_queue_holds_waits_for_the_queues_configuration(
    sizes: tuple[int, ...], most: int, placeable: int
) -> None:
    """Nothing that ends by time helps it, such as the protection of a pod of lower priority."""
    snapshot = four_nodes(most)
    snapshot.apply(PutPod(make_pod("dns", "n1", LOW, 0, namespace="kube-system")))
    snapshot.apply(Enforce(Policy(protection=Protection(namespaces=("kube-system",))), "rev"))
    members = [pod(f"m{size}", "root.a", priority=HIGH, size=size) for size in sizes]
    for one in members:
        snapshot.apply(PutPod(one))
    classes = tuple(GangClass(ask(one), 4 // len(sizes)) for one in members)

    found = refused(snapshot, GangQuestion("default/gang", classes, 4))

    assert (found.reason, found.placeable, found.retry_at) == (NO_ROOM, placeable, None)
    assert found.depends_on == (("ConfigMap", "makeway-system", "makeway-queues"),)


@pytest.mark.parametrize(
    ("most", "leaves", "retry"),
    [(1499, False, None), (1500, False, NOW + REFUSED_AGAIN), (1499, True, NOW + REFUSED_AGAIN)],
)
def test_members_that_stay_count_for_the_room_that_their_gang_has(
    most: int, leaves: bool, retry: datetime | None
) -> None:
    snapshot = four_nodes(most)
    first = msgspec.structs.replace(pod("first", "root.a", "n4", HIGH, 500), terminating=leaves)
    for one in (first, pod("protected", "root.a", "n3", LOW, 500)):
        snapshot.apply(PutPod(one))
    snapshot.apply(Enforce(Policy(protection=Protection(namespaces=("default",))), "rev"))
    placed = (Placement(namespace="default", name="first", uid="first", node="n4"),)

    found = refused(snapshot, replace(gang(snapshot, 2), placed=placed))

    assert (found.reason, found.retry_at) == (NO_ROOM, retry)


def test_members_of_another_gang_that_room_is_made_for_hold_their_places() -> None:
    snapshot = four_nodes(1500)
    places = nominated(snapshot)

    found = refused(snapshot, gang(snapshot, 2, nominations=places))

    assert found.placeable == 1


def test_they_hold_them_whatever_their_priority() -> None:
    snapshot = four_nodes(1500)
    places = nominated(snapshot, LOW)

    assert isinstance(plan_gang(snapshot, gang(snapshot, 2, nominations=places), NOW), PlanRefusal)


def test_where_the_queue_has_room_for_both_the_second_gang_is_planned_for() -> None:
    snapshot = four_nodes(2000)
    places = nominated(snapshot)

    found = planned(snapshot, gang(snapshot, 2, nominations=places))

    assert {one.node for one in found.placements} == {"n3", "n4"}


def test_a_pod_that_is_assumed_and_nominated_counts_once() -> None:
    snapshot = four_nodes(2000)
    places = nominated(snapshot)

    planned(snapshot, gang(snapshot, 2, nominations=places, assumed=places))


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize(("others", "goes"), [("root.a", {"a"}), ("root.b", set[str]())])
def test_members_in_several_queues_take_the_guarantee_of_none(turn: int, others: str, goes: set[str]) -> None:
    """Whichever of them is first: a plan that its commit refuses would be made again and again."""
    built = tree(queue("a", guaranteed={"cpu": 500}), queue("b"))
    low = pod("a", "root.a", "n1", size=500)
    snapshot = snapshot_of(built, low, nodes=2)
    members = [pod("m1", "root.a", priority=HIGH, size=500), pod("m2", others, priority=HIGH, size=500)]
    for one in members[::turn]:
        snapshot.apply(PutPod(one))
    asked = tuple(GangClass(ask(one), 1) for one in members[::turn])

    found = plan_gang(snapshot, GangQuestion("default/gang", asked, 2), NOW)
    judged = removable_pods(
        snapshot, asked[0].question, [low], NOW, members=members, preempting=GroupKey("default", "gang")
    )

    assert {one.pod.uid for one in found.victims} == goes if isinstance(found, GangPlan) else not goes
    assert judged.keys() == goes


@pytest.mark.parametrize(("most", "awaited"), [(500, ["leaving"]), (600, [])])
def test_a_pod_leaving_the_queue_is_awaited_where_there_is_no_room(most: int, awaited: list[str]) -> None:
    built = tree(queue("a", maximum={"cpu": most}), queue("b"))
    held = [pod("leaving", "root.a", "n1", size=100), pod("b", "root.b", "n1", size=900, priority=HIGH)]
    snapshot = snapshot_of(built, *held, nodes=2)

    found = planned(snapshot, gang(snapshot, 1, in_flight={"leaving": "ord-1"}))

    assert not found.victims
    assert [one.pod.uid for one in found.awaited] == awaited


def test_a_plan_for_a_gang_asks_the_queue_of_no_pod_that_is_being_deleted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of them held the planner for seconds: one look a pod, queue and resource."""
    snapshot = four_nodes(9999)
    for number in range(50):
        snapshot.apply(PutPod(make_pod(f"t{number}", "n1", size=1, ends=10)))
    asked = gang(snapshot, 2)
    looks: list[str] = []

    def counted(tree: QueueTree, named: str, namespace: str) -> QueuePlacement:
        looks.append(named)
        return place(tree, named, namespace)

    monkeypatch.setattr("makeway.planner.snapshot.queue_usage.place", counted)
    planned(snapshot, asked)

    assert len(looks) < 10
