"""PreemptionToleration: a PriorityClass may exempt its pods from preemption, for a time or for ever.

Source: KEP "Preemption Toleration" of kubernetes-sigs/scheduler-plugins, whose annotations on the
PriorityClass are read as they stand. `can_tolerate_preemption` is public: a program that plans evictions of
its own can ask it, and gets the planner's answer. Decided here, where the KEP leaves it open or its
plugin skips a whole node: a class that cannot be read exempts its pods (protect when in doubt); one that is
gone says what the record of tolerations has of it, else nothing; the toleration ends *after* its last second;
0 seconds, or none, is no toleration at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from makeway.core.k8s.importance import microseconds, moment_of
from makeway.core.k8s.objects import PriorityClass
from makeway.core.k8s.times import api_time
from makeway.core.policy.exemption import (
    FOREVER,
    LATEST,
    NOT_EXEMPT,
    PREEMPTION_TOLERATION,
    Exemption,
    exempt_from_all,
)
from makeway.core.policy.facts import NOT_SCHEDULED, PodFacts
from makeway.core.policy.toleration_record import (
    ANNOTATION_PREFIX,
    CONFIGMAP,
    NO_RECORD,
    TolerationRecord,
)

MINIMUM_PREEMPTABLE_PRIORITY: Final = ANNOTATION_PREFIX + "minimum-preemptable-priority"
"""Annotation of a PriorityClass: from this priority on a preemptor may remove its pods at once."""

TOLERATION_SECONDS: Final = ANNOTATION_PREFIX + "toleration-seconds"
"""Annotation of a PriorityClass: so long since it was scheduled a pod stays; negative: for ever."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,25}")
_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PreemptionToleration:
    """What a PriorityClass asks for. `seconds` 0: nothing; negative: for ever."""

    minimum_preemptable_priority: int
    seconds: int


@dataclass(frozen=True, slots=True)
class UnreadableAnnotation:
    """An annotation that is not a whole number of its size."""

    annotation: str
    value: str
    bits: int

    def __str__(self) -> str:
        """What is wrong and what to do, for people."""
        return f"annotation {self.annotation}: {self.value[:80]!r} is not a whole number of {self.bits} bits"


@dataclass(frozen=True, slots=True)
class TolerationVerdict:
    """Whether a pod is exempt. `detail`: why, with the numbers. `until`: its last moment, None: for ever."""

    exempt: bool
    detail: str
    until: datetime | None = None


def can_tolerate_preemption(
    victim: PodFacts,
    priority_class: PriorityClass | None,
    preemptor_priority: int,
    now: datetime,
    record: TolerationRecord = NO_RECORD,
) -> TolerationVerdict:
    """Report whether a pod is exempt from preemption by its PriorityClass. Public API; never raises. O(1).

    `victim`: facts of the pod that might go (`makeway.core.policy.facts.facts_of`). `priority_class`: the
    object that has the victim's `priority_class` for a name, as it is now, or None where there is none;
    `record` then says what is known of it. `preemptor_priority`: of the pod that needs room. Whether the
    victim's priority is the lower one is another rule's question.
    """
    exemption = exemption_of(victim, priority_class, record)
    exempt = exemption.applies(preemptor_priority, microseconds(now))
    ends = exempt and exemption.until != FOREVER
    return TolerationVerdict(
        exempt=exempt,
        detail=_detail(victim, priority_class, preemptor_priority, record),
        until=moment_of(exemption.until) if ends else None,
    )


def exemption_of(
    victim: PodFacts, priority_class: PriorityClass | None, record: TolerationRecord = NO_RECORD
) -> Exemption:
    """Return the toleration of a pod as an exemption; arguments as of `can_tolerate_preemption`. O(1)."""
    if not victim.priority_class:
        return NOT_EXEMPT
    priority_class = priority_class or record.classes.get(victim.priority_class)
    if priority_class is None:
        return NOT_EXEMPT if record.known else exempt_from_all(PREEMPTION_TOLERATION)
    toleration = toleration_of(priority_class)
    match toleration:
        case None:
            return NOT_EXEMPT
        case UnreadableAnnotation():
            return exempt_from_all(PREEMPTION_TOLERATION)
    if toleration.seconds == 0:
        return NOT_EXEMPT
    return Exemption(toleration.minimum_preemptable_priority, _last_micros(victim, toleration.seconds))


def toleration_of(priority_class: PriorityClass) -> PreemptionToleration | UnreadableAnnotation | None:
    """Read the annotations; None where there is neither."""
    annotations = priority_class.metadata.annotations
    if not annotations:
        return None
    minimum = annotations.get(MINIMUM_PREEMPTABLE_PRIORITY)
    seconds = annotations.get(TOLERATION_SECONDS)
    if minimum is None and seconds is None:
        return None
    lowest = priority_class.value + 1 if minimum is None else _whole(minimum, 32)
    if lowest is None:
        return UnreadableAnnotation(MINIMUM_PREEMPTABLE_PRIORITY, minimum or "", 32)
    how_long = 0 if seconds is None else _whole(seconds, 64)
    if how_long is None:
        return UnreadableAnnotation(TOLERATION_SECONDS, seconds or "", 64)
    return PreemptionToleration(lowest, how_long)


def tolerates(priority_class: PriorityClass) -> bool:
    """Report whether a class exempts any pod from any preemptor; one that cannot be read does."""
    toleration = toleration_of(priority_class)
    if isinstance(toleration, PreemptionToleration):
        return toleration.seconds != 0
    return toleration is not None


def _last_micros(victim: PodFacts, seconds: int) -> int:
    if seconds < 0 or victim.scheduled_micros == NOT_SCHEDULED:
        return FOREVER
    last = victim.scheduled_micros + seconds * _MICROS
    return last if last < LATEST else FOREVER


def _detail(
    victim: PodFacts, priority_class: PriorityClass | None, preemptor_priority: int, record: TolerationRecord
) -> str:
    """Return what decided, with the numbers; it names no namespace and no pod."""
    name = victim.priority_class
    if not name:
        return "the pod has no PriorityClass"
    if priority_class is None and not record.known:
        return f"PriorityClass {name} does not exist, and ConfigMap {CONFIGMAP} has not been read"
    if priority_class is None and name not in record.classes:
        return f"PriorityClass {name} does not exist"
    said = _detail_of(victim, priority_class or record.classes[name], preemptor_priority)
    return said if priority_class is not None else f"PriorityClass {name} is gone, {CONFIGMAP} has it: {said}"


def _detail_of(victim: PodFacts, priority_class: PriorityClass, preemptor_priority: int) -> str:
    name, toleration = victim.priority_class, toleration_of(priority_class)
    match toleration:
        case None:
            return f"PriorityClass {name} has no toleration"
        case UnreadableAnnotation():
            return f"PriorityClass {name}: {toleration}"
    minimum, seconds = toleration.minimum_preemptable_priority, toleration.seconds
    if seconds == 0:
        return f"PriorityClass {name} tolerates for 0 s"
    if preemptor_priority >= minimum:
        return f"{preemptor_priority} >= minimum-preemptable-priority {minimum} of PriorityClass {name}"
    lower = f"{preemptor_priority} < minimum-preemptable-priority {minimum} of PriorityClass {name}"
    if seconds < 0:
        return f"{lower}, for ever"
    if victim.scheduled_micros == NOT_SCHEDULED:
        return f"{lower}, for {seconds} s from when the pod is scheduled, which it does not say yet"
    since = api_time(moment_of(victim.scheduled_micros))
    return f"{lower}, for {seconds} s since it was scheduled at {since}"


def _whole(text: str, bits: int) -> int | None:
    """Read a whole number as Go's ParseInt does with base 10; None where it is none, or too large."""
    if _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None
