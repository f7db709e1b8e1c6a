"""What the leading planner says is effective: modes, limits, queues."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from makeway.bus.messages import Count, Int64, Message, Text
from makeway.core.policy.document import GroupPreemptors, UnplannedPods
from makeway.core.policy.mode import Mode

TYPE_CONTROL = "dev.makeway.control.v1"


REVISION_AHEAD = timedelta(hours=1)
"""How far ahead of a reader's clock the revision of a control state may be, which is a time in milliseconds
since 1970. Further, it is no planner's: one that was believed could never be followed by another."""


class Limits(Message, frozen=True):
    """Bounds of the policy; each absent where there is none.

    `victims_per_order`: an order with more is refused. `orders_in_flight`: with so many orders without an
    outcome no further preemption begins; the planner sees to that.
    """

    victims_per_order: Count | None = None
    orders_in_flight: Count | None = None


class QueueLimit(Message, frozen=True):
    """A queue of the tree. `max` by resource: milli-CPU, bytes, units; what is not in it has no limit.

    `namespaces` may use the queue; none listed means all of them. `guaranteed`, by resource as `max`: no
    preemption for a pod outside the queue takes it below; what is not in it has no guarantee.
    """

    path: Text
    max: dict[str, Count] = msgspec.field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    guaranteed: dict[str, Count] = msgspec.field(default_factory=dict)


class Unplanned(Message, frozen=True):
    """What restricts preemption, which says what becomes of a pod that there is no plan for, in mode enforce.

    By the names that the policy has for it. `protecting`: hard budgets, and rules by which pods are never
    victims. `restricting`: queues, limits, PriorityClasses that tolerate preemption. Where both are empty
    kube-scheduler's own preemption, which knows no policy, acts as it is. Where `protecting` is empty it does
    so for pods too of which `default`, or `system` from priority 2000000000 on, says `fallback`.
    """

    protecting: tuple[str, ...] = ()
    restricting: tuple[str, ...] = ()
    default: UnplannedPods = "hold"
    system: UnplannedPods = "fallback"


class SettledQuota(Message, frozen=True):
    """A queue whose quota has nothing left to enforce: no timer and no process runs for it on these terms.

    `max` by resource as in `QueueLimit`; the delay in microseconds.
    """

    path: Text
    max: dict[str, Count]
    delay_microseconds: Count
    mode: Mode


class EnforcedQuota(Message, frozen=True):
    """A queue whose process had not ended, with the maximum that it began with.

    `max` by resource as in `QueueLimit`. `need`: what usage was above it when the process first planned;
    empty before that.
    """

    path: Text
    max: dict[str, Count]
    need: dict[str, Count] = msgspec.field(default_factory=dict)


class ControlState(Message, frozen=True):
    """What the leading planner tells plugin and evictor: how far to go, and within which limits.

    Each of them takes the more restrictive of this and its own argument, per namespace. `revision`
    rises with every change and never falls, though it may leap; the subject holds the last one.
    `queues` is the whole tree, parents before children, in the order of the file; `queues_revision` is
    empty where there is no queue configuration, and so no gate. `exempt_namespaces`:
    whose pods are counted in their queues and never held by them; where it is empty the plugin's argument
    holds. `hard_budget_namespaces`: where PodDisruptionBudgets are never violated; `"*"` means everywhere.
    `group_preemptors`: whether anything is evicted for pods of a gang. Without `unplanned` it is not known
    what restricts preemption. `settled` is the planner's own memory: a planner that begins to lead starts no
    timer for a queue whose terms are as they are there. `enforcing`, its own memory as well: the processes
    that had not ended. `pods`: about how many there are, bound to a node, for limits that are a share of
    them; 0 where that is not known. `tolerations_revision`: the resourceVersion of ConfigMap
    `makeway-tolerations` as the planner has read it; empty where it is not there.
    """

    revision: Int64
    mode: Mode
    cluster_uid: Text
    policy_revision: str = ""
    namespace_modes: dict[str, Mode] = msgspec.field(default_factory=dict)
    limits: Limits | None = None
    queues_revision: str = ""
    queues: tuple[QueueLimit, ...] = ()
    hard_budget_namespaces: tuple[str, ...] = ()
    group_preemptors: GroupPreemptors = "upstream"
    unplanned: Unplanned | None = None
    exempt_namespaces: tuple[str, ...] = ()
    settled: tuple[SettledQuota, ...] = ()
    enforcing: tuple[EnforcedQuota, ...] = ()
    pods: Count = 0
    tolerations_revision: str = ""
