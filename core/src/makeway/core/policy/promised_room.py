"""Whether a node that is being made promises a pod room, so that nothing need be preempted for it. Pure.

A promise counts for pods of classes that delay preemption. It is a guess: a NodeClaim names no pods. One that
was made after the pod had failed, is large enough and suits the pod's selector and tolerations counts, for a
while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.node_claims import ComingNode
from makeway.core.k8s.nodes import RequiredNodes, keeps_out
from makeway.core.k8s.objects import Toleration

LONGEST_PROMISE: Final = timedelta(minutes=15)
"""From a claim's creation on; Karpenter gives a node that has not registered up after as long."""

LOOK_AGAIN: Final = timedelta(seconds=10)
"""How soon a pod that waits for a promise is looked at again: the claim may have come to nothing."""

_RESOLUTION: Final = timedelta(seconds=1)
"""Of times in the API."""


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
