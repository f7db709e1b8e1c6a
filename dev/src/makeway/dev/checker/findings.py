"""What a check finds: broken promises, and promises that still have time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Invariant(StrEnum):
    """A promise that makeway makes; the value names what breaks it."""

    DELETE_WITHOUT_PRECONDITION = "delete-without-precondition"
    """Every delete of ours is conditional on the UID."""
    DELETE_NOT_ORDERED = "delete-not-ordered"
    """Namespace, name and UID are those of a victim of an order that was committed before."""
    DELETE_BY_ANOTHER = "delete-by-another"
    """Of makeway's accounts only the evictor deletes pods (and the scheduler, where it may fall back)."""
    DELETED_TWICE = "deleted-twice"
    """We delete an incarnation of a pod once."""
    VICTIM_NOT_LOWER = "victim-not-lower"
    """A victim's priority is below the preemptor's, in the API's objects; it may be equal where the policy
    turns on the simple preemptor, the preemptor is bound to the order's node by its DaemonSet, and the
    victim is not system-critical."""
    VICTIM_OF_DAEMONSET = "victim-of-daemonset"
    """No pod of a DaemonSet goes for one that its DaemonSet has bound to a node, by the simple preemptor."""
    VICTIM_OF_QUOTA = "victim-of-quota"
    """No quota takes the pod of a DaemonSet, a mirror pod, or a system-critical one."""
    VICTIM_UNKNOWN = "victim-unknown"
    """The priorities of victim and preemptor can be read from the API's objects."""
    PATCH_WITHOUT_UID = "patch-without-uid"
    """Every patch of a pod's status by the evictor carries the UID."""
    MARK_NOT_ORDERED = "mark-not-ordered"
    """DisruptionTarget is set on victims of a committed order only."""
    CLEAR_NOT_ORDERED = "clear-not-ordered"
    """The evictor clears the nominations an order lists, or that of the order's own preemptor."""
    LATE_WRITE = "late-write"
    """Nothing but a rollback is written after `not_after` + 2 s."""
    TWO_LIVE_ORDERS = "two-live-orders"
    """A preemptor has one live order, and so has a queue."""
    VICTIM_IN_TWO_ORDERS = "victim-in-two-orders"
    """A pod is a victim of one live order, but for one that was cancelled with nothing done.

    An order may be stored after its writer has given it up, where the streams lose their quorum while it is
    being stored. Its preemptor is not nominated any more, so that evictors cancel it.
    """
    TWO_OUTCOMES = "two-outcomes"
    """An order has one outcome."""
    OUTCOME_WITHOUT_ORDER = "outcome-without-order"
    """An outcome belongs to an order that was committed before it."""
    NO_OUTCOME = "no-outcome"
    """An order has its outcome in the end: by `not_after` + 2 s, or once it was given out again."""
    NOMINATION_LEFT = "nomination-left"
    """No nomination of an order that made no room stands 10 s after its outcome."""
    MARK_LEFT = "mark-left"
    """No pod that stays has our DisruptionTarget 30 s after the order's end."""
    PREEMPTOR_IDLE = "preemptor-idle"
    """The preemptor is tried again within 10 s of the outcome, or of the last victim's leaving; a nominator's
    within kube-scheduler's longest back-off more."""
    BOUND_TWICE = "bound-twice"
    """A preemptor is bound once."""
    DELETE_WITHOUT_REVISION = "delete-without-revision"
    """Every delete of ours is conditional on the resourceVersion of the pod as it was judged, but where two
    writes to that pod have met a conflict before."""
    GRACE_SHORTENED = "grace-shortened"
    """A victim has its own grace period."""
    WRITE_BEYOND = "write-beyond"
    """Of a pod's status the evictor writes its mark and a nomination, and of pods nothing else; the planner
    writes no pod."""
    VICTIM_PROTECTED = "victim-protected"
    """No victim is in a protected namespace, opted out where that is honoured, or a mirror pod."""
    VICTIM_ELSEWHERE = "victim-elsewhere"
    """A preemptor's victim is on the order's node; one of a unit on the node that the order says. A
    group's victim by itself is where a member comes, or its order names the domain that it keeps closed: a
    label's value that its node and a member's had."""
    UNIT_BROKEN = "unit-broken"
    """No pod of a group that is evicted whole or not at all is deleted unless the order has all its pods."""
    BARRIER_SKIPPED = "barrier-skipped"
    """No victim of a group's order is deleted before all its victims were read, a second before at most, and
    the deletion of each was tried."""
    GANG_SHORT = "gang-short"
    """No pod goes for a group of which fewer members wait or run than its minCount."""
    BUDGET_PASSED_BY = "budget-passed-by"
    """Where budgets are hard the API server counts them: victims go by its eviction API."""
    DELETE_UNDER_BRAKE = "delete-under-brake"
    """Nothing is deleted while the brake is set, but what was under way."""
    FENCE_NOT_HELD = "fence-not-held"
    """An order that is carried out names a Lease that its writer held when it was committed."""
    ORDER_TWICE = "order-twice"
    """An order is committed once."""
    ORDER_MISROUTED = "order-misrouted"
    """An order that is carried out is stored on its preemptor's or queue's own subject."""
    ORDER_OF_ANOTHER_CLUSTER = "order-of-another-cluster"
    """An order that is carried out names this cluster."""
    PREEMPTOR_MAY_NOT = "preemptor-may-not"
    """No pod goes for one whose preemptionPolicy is Never."""
    CAP_EXCEEDED = "cap-exceeded"
    """No order, and no minute, takes more pods than the policy allows, on nodes without members neither."""
    LOST_WORK_UNASKED = "lost-work-unasked"
    """No candidate is ranked by lost work where the policy does not ask for it."""
    LOST_WORK_FIRST = "lost-work-first"
    """Lost work decides between candidates with as few violations and an equal highest priority alone."""
    OUTCOME_UNTRUE = "outcome-untrue"
    """An outcome tells what became of the victims."""
    OUTCOME_BEFORE_ROLLBACK = "outcome-before-rollback"
    """The outcome of an order that makes no room is written when its marks and its nomination are undone."""


@dataclass(frozen=True)
class Violation:
    """A broken promise. `objects`: pods, orders; `at`: when it was broken; `evidence`: what was read."""

    rule: Invariant
    objects: tuple[str, ...]
    at: datetime
    evidence: str

    def __str__(self) -> str:
        return f"{self.at.isoformat()} {self.rule.value}: {', '.join(self.objects)}: {self.evidence}"


@dataclass(frozen=True)
class PendingPod:
    """A promise that is not kept yet and has until `due`."""

    rule: Invariant
    objects: tuple[str, ...]
    due: datetime


@dataclass(frozen=True)
class Findings:
    """Everything a check found, in order of time."""

    violations: tuple[Violation, ...]
    pending: tuple[PendingPod, ...]

    def __str__(self) -> str:
        lines = [str(violation) for violation in self.violations]
        lines += [
            f"{pending.due.isoformat()} due {pending.rule.value}: {', '.join(pending.objects)}"
            for pending in self.pending
        ]
        return "\n".join(lines) or "nothing found"
