"""Which nominated pod may be behind a mark that no plan claims."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from makeway.core.comparison import RemovedPod
from makeway.core.k8s.objects import Pod
from makeway.planner.observe.detecting import UNCLAIMED, Nominees
from makeway.planner.observe.pairing import WINDOW, Evicted
from unit.planner.building import HIGH, LOW, NOW, make_pod


def nominee(uid: str, node: str = "n1", **spec: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"namespace": "default", "name": uid, "uid": uid},
            "spec": {"schedulerName": "default-scheduler", "priority": HIGH, **spec},
            "status": {"nominatedNodeName": node},
        },
        Pod,
    )


def mark(uid: str, at: datetime = NOW, node: str = "n1") -> Evicted:
    return Evicted(make_pod(uid, node, LOW), RemovedPod(uid, LOW, 0), "default-scheduler", at, 7)


def behind(nominees: Nominees, *marks: Evicted, now: datetime = NOW) -> list[str]:
    return [one.pod.metadata.name for one in nominees.behind("n1", marks, now, lambda _: False)]


def test_a_preemption_is_told_once_with_its_first_mark() -> None:
    nominees = Nominees()
    assert nominees.put(nominee("P"), NOW) == "n1"
    first, second = mark("a"), mark("b", NOW + timedelta(seconds=1))

    (found,) = nominees.behind("n1", [first, second], NOW, lambda _: False)

    assert (found.at, found.revision, found.node) == (NOW, 7, "n1")
    assert behind(nominees, second) == []


def test_a_pod_that_was_planned_for_is_told_by_its_plan_alone() -> None:
    nominees = Nominees()
    nominees.put(nominee("P"), NOW)

    assert nominees.behind("n1", [mark("a")], NOW, lambda uid: uid == "P") == []
    assert behind(nominees, mark("b")) == [], "its marks still come"


def test_a_pod_nominated_long_ago_is_asked_only_once_no_other_shows() -> None:
    nominees = Nominees()
    nominees.put(nominee("P"), NOW)
    late = NOW + WINDOW * 2

    assert behind(nominees, mark("a", late), now=late) == []
    assert behind(nominees, mark("a", late), now=late + UNCLAIMED) == ["P"]


def test_a_pod_that_is_bound_or_nominated_elsewhere_is_no_nominee_of_the_node() -> None:
    nominees = Nominees()
    nominees.put(nominee("P"), NOW)
    nominees.put(nominee("Q"), NOW)

    nominees.put(nominee("P", "n2"), NOW)
    nominees.put(nominee("Q", nodeName="n1"), NOW)

    assert behind(nominees, mark("a")) == []
    assert len(nominees) == 1
