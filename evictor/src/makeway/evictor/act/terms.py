"""How an order is carried out: what differs between those for a pod, for a group and of a quota. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from makeway.bus.messages import EvictionOrder


@dataclass(frozen=True)
class Terms:
    """The terms of one order.

    `wanted_by`: what has to want it still: a pod that is nominated, a group of which enough members are, or a
    queue whose quota is enforced.
    `judged_by`: what says whether a victim may go: the rules of preemption, or the queues.
    `together`: all victims go or none, so the first that stays stops the order. Else each is judged, waits
    for the caps and goes by itself; the outcome says of each what became of it.
    `trial`: whose deletion is tried without effect before the first one: of victims that go with their unit,
    or of all.
    `barrier`: before the first delete everything is read once more within a moment, the victims last.
    """

    wanted_by: Literal["pod", "group", "queue"] = "pod"
    judged_by: Literal["rules", "queues"] = "rules"
    together: bool = True
    trial: Literal["units", "all"] = "units"
    barrier: bool = False


FOR_A_POD: Final = Terms()
"""Room on one node, worth nothing unless all victims go."""

FOR_A_GROUP: Final = Terms(wanted_by="group", trial="all", barrier=True)
"""The members come in together or not at all, so a victim that stays has cost the others their lives for
nothing."""

OF_A_QUOTA: Final = Terms(wanted_by="queue", judged_by="queues", together=False)
"""Pods of a queue on any nodes: each that goes brings the queue nearer to its maximum."""

OF_UNITS_IN_A_QUOTA: Final = Terms(wanted_by="queue", judged_by="queues")
"""Pods of groups that go whole. It is enough that one pod of a group is in the order's queue."""


def terms_of(order: EvictionOrder) -> Terms:
    """Return the terms of an admitted order."""
    match order.kind:
        case "pod":
            return FOR_A_POD
        case "group":
            return FOR_A_GROUP
        case "quota":
            return OF_UNITS_IN_A_QUOTA if any(one.unit for one in order.victims) else OF_A_QUOTA
