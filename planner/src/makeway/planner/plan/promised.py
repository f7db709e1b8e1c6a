"""Plans that wait for a node that is being made, and promises a pod room; so nothing need be preempted. Pure.

A promise counts for pods of classes that delay preemption. It is a guess: a NodeClaim names no pods. One that
was made after the pod had failed, is large enough and suits the pod's selector and tolerations counts, for a
while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.by_uid import ByUid
from makeway.core.k8s.node_claims import ComingNode, NodeClaim, coming_node
from makeway.core.k8s.nodes import RequiredNodes, keeps_out
from makeway.core.k8s.objects import PriorityClass, Toleration
from makeway.core.k8s.quantity import QuantityError
from makeway.core.k8s.times import api_time
from makeway.core.policy.delay import delay_of
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal

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
    coming: ComingNodes, classes: Mapping[str, PriorityClass], question: Question, plan: Plan, now: datetime
) -> Plan | PlanRefusal:
    """Refuse a plan for now where the preemptor's class delays and a node is being made for it."""
    name = question.preemptor.facts.priority_class
    delay = delay_of(classes.get(name))
    if not coming.by_uid or question.unfit_since is None or not isinstance(delay, timedelta) or not delay:
        return plan
    promise = promise_for(
        coming.by_uid.values(),
        needs=question.needs,
        nodes=question.constraints.nodes,
        tolerations=question.constraints.tolerations,
        since=question.unfit_since,
        now=now,
    )
    if promise is None:
        return plan
    ends = promise.created + LONGEST_PROMISE
    message = (
        f"NodeClaim {promise.name} promises room, and PriorityClass {name} delays preemption; "
        f"it is waited for until {api_time(ends)} at the latest"
    )
    return plan.refused(ROOM_PROMISED, message, min(ends, now + LOOK_AGAIN))


def promise_for(
    coming: Iterable[ComingNode],
    *,
    needs: Mapping[str, int],
    nodes: RequiredNodes,
    tolerations: tuple[Toleration, ...],
    since: datetime,
    now: datetime,
) -> ComingNode | None:
    """Return the eldest node that promises a pod room.

    `needs`: what the pod asks of a node, by column. `since`: since when it fits nowhere. O(coming nodes).
    """
    found = [
        one
        for one in coming
        if since - _RESOLUTION <= one.created
        and now < one.created + LONGEST_PROMISE
        and all(one.room.get(name, 0) >= amount for name, amount in needs.items() if name != "pods")
        and all(one.labels.get(key, value) == value for key, value in nodes.labels)
        and not keeps_out(one.taints, tolerations)
    ]
    return min(found, key=lambda one: (one.created, one.name), default=None)
