"""What `makeway check` says of PriorityClasses: what of them cannot be read, and which ask for what.

Which delay preemption, and for whose pods a nominator makes room.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import listed
from makeway.core.config.duration import as_text
from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.delay import UnreadableDelay, delay_of
from makeway.core.policy.external import ANNOTATION, EXTERNAL, asks_for_external, is_external
from makeway.core.policy.lost_work import interval_problem
from makeway.core.policy.toleration import TOLERATION_SECONDS, UnreadableAnnotation, toleration_of
from makeway.core.text import first_few

NAME: Final = "priority classes"

_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"

_SHOWN: Final = 5
"""Classes that are named."""


async def class_result(at: CheckedCluster) -> CheckResult:
    """Judge the cluster's PriorityClasses. Raises as `Api.request`."""
    classes = await listed(at.api, _CLASSES, PriorityClass)
    return judge(classes, nominator="nominator" in at.form.parts)


def judge(classes: Sequence[PriorityClass], *, nominator: bool) -> CheckResult:
    """Say which annotations have no effect, with what that means; or else which classes ask for what.

    `nominator`: one is to be there, which preempts for classes that are opted in.
    """
    unread: list[str] = []
    delayed: list[str] = []
    external: list[str] = []
    refused: list[str] = []
    for one in sorted(classes, key=lambda one: one.metadata.name):
        name = one.metadata.name
        toleration = toleration_of(one)
        if isinstance(toleration, UnreadableAnnotation):
            unread.append(f"{name}: {toleration}; no pod of it is preempted")
        elif toleration is not None and TOLERATION_SECONDS not in (one.metadata.annotations or {}):
            unread.append(f"{name}: without {TOLERATION_SECONDS} its pods tolerate no preemption")
        match delay_of(one):
            case UnreadableDelay() as unreadable:
                unread.append(f"{name}: {unreadable}; nothing is delayed")
            case timedelta() as delay if delay:
                delayed.append(f"{name} by {as_text(delay)}")
        if why := interval_problem(one.metadata):
            unread.append(f"{name}: {why}; its pods count as never saving")
        if is_external(one):
            external.append(name)
        elif asks_for_external(one):
            refused.append(f"{name}: {ANNOTATION}: {EXTERNAL} has no effect without preemptionPolicy: Never")
    if unread:
        return CheckResult(
            NAME, "warning", first_few(unread, _SHOWN, "; "), "mend the annotation, or remove it"
        )
    if refused:
        remedy = "make the class anew with preemptionPolicy: Never, or remove the annotation"
        return CheckResult(NAME, "warning", first_few(refused, _SHOWN, "; "), remedy)
    if external and not nominator:
        told = f"opted in to preemption from outside, without a nominator: {first_few(external, _SHOWN)}"
        remedy = "install one with bridge=external or nominator.besidePlugin, or remove the annotation"
        return CheckResult(NAME, "warning", told, remedy)
    text = f"{len(classes)}, all annotations can be read"
    if delayed:
        text += f"; delay preemption: {first_few(delayed, _SHOWN)}"
    if external:
        text += f"; makeway nominator preempts for: {first_few(external, _SHOWN)}"
    elif nominator:
        text += "; none is opted in, so the nominator only watches: see docs/external.md"
    return CheckResult(NAME, "ok", text)
