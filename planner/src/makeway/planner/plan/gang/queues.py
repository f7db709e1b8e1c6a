"""What queues mean for a group: which room it has in them.

As for single pods (`constraints.queues`), but for all members and all victims of a plan together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from makeway.core.queues.queue_exempt import is_queue_exempt
from makeway.core.queues.tree import Queue
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.snapshot.columns import MOST
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot


@dataclass(frozen=True, slots=True)
class GangMaximum:
    """What is left of a queue's maximum; `most`: what would be, were none of the pods there that hold it.

    `classes`: for each class of members, it is in the queue. `leaving`: its pods that leave anyway, which
    `room` does not count.
    """

    queue: Queue
    resource: str
    room: int
    most: int
    classes: tuple[bool, ...]
    leaving: tuple[PodRecord, ...]


def maxima_of(
    snapshot: Snapshot, gang: GangQuestion, assumed: Sequence[PodRecord]
) -> tuple[GangMaximum, ...]:
    """Return the maxima that the group could go over now. O(maxima of its queues · pods in flight).

    Nominated pods count as there, whatever their priority: the queue gate keeps the places of those that live
    orders make room for, and looks at the members of a group one by one.
    """
    queues = snapshot.queues
    tree = queues.tree
    if tree is None or queues.held is None:
        return ()
    pods = [one.question.preemptor for one in gang.classes]
    first = gang.classes[0].question
    nominated = [snapshot.pods.get(one.uid) for one in gang.classes[0].question.nominations]
    coming_pods = {one.uid: one for one in (*assumed, *nominated) if one is not None and not one.node}
    ordered = (snapshot.pods.get(uid) for uid in first.in_flight)
    awaited = [pod for pod in ordered if pod is not None and pod.node and not pod.terminating]
    awaited += first.terminating.pods()
    exempt = snapshot.exemptions.queue_exempt_namespaces
    held_back = [not is_queue_exempt(pod.namespace, pod.priority, exempt) for pod in pods]
    own = [queues.queue_of(pod) for pod in pods]
    lines: dict[int, Queue] = {}
    for queue, held in zip(own, held_back, strict=True):
        if queue is not None and held:
            lines.update((one.number, one) for one in tree.line(queue.number))
    found = []
    for queue in lines.values():
        classes = tuple(
            held and mine is not None and queue.number <= mine.number < queue.below
            for mine, held in zip(own, held_back, strict=True)
        )
        holds = queues.held.of(queue.number)
        leaving = tuple(one for one in awaited if queue.number <= queues.number_of(one) < queue.below)
        for name, most in sorted(queue.maximum.items()):
            coming = sum(
                pod.requests.get(name, 0)
                for pod in coming_pods.values()
                if queue.number <= queues.number_of(pod) < queue.below
            )
            going = sum(pod.requests.get(name, 0) for pod in leaving)
            room = most - holds.get(name, 0) - coming + going
            asked = sum(
                one.count * one.question.preemptor.requests.get(name, 0)
                for one, inside in zip(gang.classes, classes, strict=True)
                if inside
            )
            if asked and room - going < asked:
                found.append(GangMaximum(queue, name, max(room, -MOST), most - coming, classes, leaving))
    return tuple(found)
