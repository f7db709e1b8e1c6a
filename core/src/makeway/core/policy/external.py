"""Which pods makeway makes room for from outside the scheduler: those of PriorityClasses that say so.

A class is opted in by an annotation and by `preemptionPolicy: Never`. Without Never the scheduler's own
preemption would act for the pod as well, and clear nominations that others wrote. Pure.
"""

from __future__ import annotations

from typing import Final

from makeway.core.k8s.objects import PriorityClass

ANNOTATION: Final = "makeway.dev/preemption"
"""Of a PriorityClass; who preempts for its pods."""

EXTERNAL: Final = "external"
"""Its value where the nominator does."""

NEVER: Final = "Never"


def asks_for_external(priority_class: PriorityClass) -> bool:
    """Report whether a class is annotated, whatever its preemptionPolicy."""
    return (priority_class.metadata.annotations or {}).get(ANNOTATION) == EXTERNAL


def is_external(priority_class: PriorityClass | None) -> bool:
    """Report whether makeway preempts from outside for the pods of a class; there may be no such class."""
    return (
        priority_class is not None
        and asks_for_external(priority_class)
        and priority_class.preemption_policy == NEVER
    )
