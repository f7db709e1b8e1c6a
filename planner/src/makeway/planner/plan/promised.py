"""Plans that wait for nodes that are being made, and promise room; so nothing need be preempted. Pure.

A promise counts for pods of classes that delay preemption. It is a guess: a NodeClaim names no pods. One that
was made after the pod had failed, is large enough and suits the pod's selector and tolerations counts, for a
while. A group waits where there is room promised for as many members of each class as come where pods go:
with fewer it would preempt all the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from makeway.core.k8s.by_uid import ByUid
from makeway.core.k8s.node_claims import ComingNode, NodeClaim, coming_node
from makeway.core.k8s.nodes import keeps_out
from makeway.core.k8s.objects import PriorityClass
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.resources import PODS
from makeway.core.k8s.times import api_time
from makeway.core.policy.delay import delay_of
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Planned, PlanRefusal

ROOM_PROMISED: Final = "RoomPromised"
"""Reason of a refusal of a plan that waits for a node."""

MOST_COMING: Final = 1000
"""Nodes that are being made and are looked at; more than that promise nothing."""


LONGEST_PROMISE: Final = timedelta(minutes=15)
"""From a claim's creation on; Karpenter gives a node that has not registered up after as long."""

LOOK_AGAIN: Final = timedelta(seconds=10)
"""How soon a pod that waits for a promise is looked at again: the claim may have come to nothing."""

_RESOLUTION: Final = timedelta(seconds=1)
"""Of times in the API."""

A = TypeVar("A", bound=Planned)


class ComingNodes(ByUid[NodeClaim, ComingNode]):
    """The nodes that are being made, by the UID of their claims."""

    def keep(self, item: NodeClaim) -> ComingNode | None:
        """Return a claim's node; one that is there, or that cannot be read, promises nothing."""
        if item.metadata.uid not in self.by_uid and len(self.by_uid) >= MOST_COMING:
            return None
        try:
            return coming_node(item)
        except QuantityError:
            return None


def wait_for_promise(
    coming: ComingNodes,
    classes: Mapping[str, PriorityClass],
    asked: Sequence[Question],
    plan: A,
    now: datetime,
) -> A | PlanRefusal:
    """Refuse a plan for now where a preemptor's class delays and nodes are being made for all who preempt.

    `asked`: the questions, of each class of a group's members.
    """
    if not coming.by_uid:
        return plan
    displacing = plan.displacing
    names = [asked[cls].preemptor.facts.priority_class for cls in displacing]
    name = next((one for one in names if delays(classes.get(one))), "")
    if not name:
        return plan
    suited = {cls: promises_for(coming.by_uid.values(), asked[cls], now) for cls in displacing}
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    # Those whose pods suit the fewest nodes choose first.
    for cls, count in sorted(displacing.items(), key=lambda one: len(suited[one[0]])):
        needs, left = asked[cls].needs, count
        for node in suited[cls]:
            comes = holds(node, needs, left, taken[node.name])
            taken[node.name].update({name: amount * comes for name, amount in needs.items()})
            left -= comes
        if left:
            return plan
    promises = [node for found in suited.values() for node in found]
    promise = min(promises, key=lambda one: (one.created, one.name))
    ends = promise.created + LONGEST_PROMISE
    message = (
        f"NodeClaim {promise.name} promises room, and PriorityClass {name} delays preemption; "
        f"it is waited for until {api_time(ends)} at the latest"
    )
    return plan.refused(ROOM_PROMISED, message, min(ends, now + LOOK_AGAIN))


def delays(priority_class: PriorityClass | None) -> bool:
    """Report whether pods of a class wait before they preempt."""
    delay = delay_of(priority_class)
    return isinstance(delay, timedelta) and bool(delay)


def promises_for(coming: Iterable[ComingNode], question: Question, now: datetime) -> list[ComingNode]:
    """Return the nodes that suit a pod and that were made since it fits nowhere. O(coming nodes)."""
    since, constraints = question.unfit_since, question.constraints
    return [
        one
        for one in coming
        if since is not None
        and since - _RESOLUTION <= one.created
        and now < one.created + LONGEST_PROMISE
        and holds(one, question.needs, 1, {})
        and all(one.labels.get(key, value) == value for key, value in constraints.nodes.labels)
        and not keeps_out(one.taints, constraints.tolerations)
    ]


def holds(node: ComingNode, needs: Mapping[str, int], most: int, taken: Mapping[str, int]) -> int:
    """Return how many pods that need so much a node has room for beside what is taken, up to `most`."""
    asked = ((name, amount) for name, amount in needs.items() if name != PODS and amount)
    each = ((node.room.get(name, 0) - taken.get(name, 0)) // amount for name, amount in asked)
    return min((most, *each))
