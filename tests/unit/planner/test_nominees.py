"""Which nominated pod may be behind a mark that no plan claims."""

from datetime import datetime, timedelta
from typing import Any

from makeway.core.comparison import RemovedPod
from makeway.core.k8s.objects import Pod
from makeway.planner.observe.marks import Evicted
from makeway.planner.observe.pairing import UNCLAIMED, WINDOW, Pairing
from unit.planner.building import HIGH, LOW, NOW, make_pod
from unit.planner.test_observing import pod_object


def nominee(uid: str, node: str = "n1", **spec: Any) -> Pod:
    spec = {"schedulerName": "default-scheduler", "priority": HIGH, **spec}
    return pod_object(uid, spec=spec, status={"nominatedNodeName": node})


def mark(uid: str, at: datetime = NOW, node: str = "n1") -> Evicted:
    return Evicted(make_pod(uid, node, LOW), RemovedPod(uid, LOW, 0), "default-scheduler", at, 7)


def behind(nominees: Pairing, *marks: Evicted, now: datetime = NOW) -> list[str]:
    for one in marks:
        nominees.evicted(one)
    return [one.pod.metadata.name for one in nominees.unasked(now)]


def test_a_preemption_is_told_once_with_its_first_mark() -> None:
    nominees = Pairing()
    nominees.put("P", nominee("P"), NOW)
    for one in (mark("b", NOW + timedelta(seconds=1)), mark("a")):
        nominees.evicted(one)

    (found,) = nominees.unasked(NOW, anew=True)

    assert (found.at, found.revision, found.members) == (NOW, 7, ((nominee("P"), "n1"),))
    assert behind(nominees, mark("c", NOW + timedelta(seconds=1))) == []


def test_a_pod_that_was_planned_for_is_told_by_its_plan_alone() -> None:
    served = {"P"}
    nominees = Pairing(served=served.__contains__)
    nominees.put("P", nominee("P"), NOW)

    assert behind(nominees, mark("a")) == []
    served.clear()
    assert behind(nominees, mark("b")) == [], "its marks still come"


def test_a_pod_nominated_long_ago_is_asked_only_once_no_other_shows() -> None:
    nominees = Pairing()
    nominees.put("P", nominee("P"), NOW)
    late = NOW + WINDOW * 2

    assert behind(nominees, mark("a", late), now=late) == []
    assert behind(nominees, now=late + UNCLAIMED) == ["P"]


def test_a_pod_that_is_bound_or_nominated_elsewhere_is_no_nominee_of_the_node() -> None:
    nominees = Pairing()
    nominees.put("P", nominee("P"), NOW)
    nominees.put("Q", nominee("Q"), NOW)

    nominees.put("P", nominee("P", "n2"), NOW)
    nominees.put("Q", nominee("Q", nodeName="n1"), NOW)

    assert behind(nominees, mark("a", NOW + timedelta(seconds=1))) == []
    assert [(pod.metadata.name, node) for pod, node in nominees.nominated()] == [("P", "n2")]


def test_a_pod_that_was_bound_since_is_behind_a_mark_that_is_known_late() -> None:
    nominees = Pairing()
    nominees.put("P", nominee("P"), NOW)
    nominees.put("P", nominee("P", nodeName="n1"), NOW + timedelta(seconds=1))

    assert behind(nominees, mark("a"), now=NOW + timedelta(seconds=2)) == ["P"]


def test_pods_that_are_bound_are_forgotten_soon() -> None:
    nominees = Pairing()
    nominees.put("P", nominee("P"), NOW)
    nominees.put("P", nominee("P", nodeName="n1"), NOW)

    nominees.due(NOW + 2 * WINDOW)

    assert behind(nominees, mark("a"), now=NOW + 2 * WINDOW) == []
