"""Why there is no plan for a pod group once its search has ended, and whether that is final."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import datetime

import numpy as np

from makeway.core.text import counted
from makeway.planner.plan.gang.levels import bound_of, fewest_victims, most_alone
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.refusal.text import (
    FORBIDDEN,
    NO_ROOM,
    NOT_FOUND,
    REFUSED_AGAIN,
    amount_of,
)
from makeway.planner.plan.result import PlanRefusal, Scope
from makeway.planner.plan.terminating import overdue_text
from makeway.planner.snapshot.exemptions import Source
from makeway.planner.snapshot.state import Snapshot


def refusing(
    scope: Scope,
    gang: GangQuestion,
    placeable: int,
    *,
    left_out: tuple[str, ...],
    models: Sequence[Model],
    whole: bool,
    now: datetime,
) -> Generator[None, None, PlanRefusal]:
    """Return the refusal; pause after each domain. It is final only where no plan can be.

    `placeable`: members for which places were found in the best domain. `models`: of the domains; `whole`:
    there are no others.
    """
    within = f" within one {' and '.join(gang.topology)}" if gang.topology else ""
    bounds = []
    for model in models:
        bounds.append((*bound_of(model), model))
        yield
    most, cause, nearest = max(bounds, key=lambda one: one[0], default=(0, "", None))
    passes = any(_spares(model, gang) or model.preempting.reclaim is not None for model in models)
    retry_at = now + REFUSED_AGAIN if passes else None
    if most < gang.must_place and whole:
        message = (
            f"without all removable pods there is room for at most {most} of the {gang.must_place} pods "
            f"that group {gang.name} needs{within}"
        )
        missing = _lacks(nearest) if nearest is not None and not cause else {}
        if cause:
            message += f": {cause}"
        if missing:
            lacks = ", ".join(f"{name} {amount_of(name, amount)}" for name, amount in missing.items())
            message += f"; missing even then: {lacks}"
        namespace = gang.name.partition("/")[0]
        if nearest is not None and (
            late := overdue_text(nearest.snapshot, set(nearest.names), now, namespace)
        ):
            message += f"; {late}"
        return PlanRefusal(
            scope, NO_ROOM, message, placeable=most, left_out=left_out, retry_at=retry_at, missing=missing
        )
    forbidden = whole
    for model in models if whole else ():
        forbidden = forbidden and _is_forbidden(model)
        yield
    if forbidden:
        message = (
            f"there would be room for {counted(gang.must_place, 'pod')} of group {gang.name}{within}, but "
            "not within the policy's bounds for one plan"
        )
        if any(_keeps_together(model) for model in models):
            retry_at = now + REFUSED_AGAIN
        return PlanRefusal(
            scope, FORBIDDEN, message, placeable=placeable, left_out=left_out, retry_at=retry_at
        )
    found = (
        f"places were found for {placeable} of the {gang.must_place} pods that group {gang.name} needs"
        f"{within}"
        if placeable < gang.must_place
        else f"no plan within the policy's bounds was found for group {gang.name}{within}"
    )
    message = f"{found}, and it is not certain that there is none for all{_closed(models)}"
    return PlanRefusal(scope, NOT_FOUND, message, placeable=placeable, left_out=left_out, retry_at=retry_at)


def depends_on(snapshot: Snapshot, refusal: PlanRefusal) -> tuple[Source, ...]:
    """Return the configuration whose change may help: of queues, and the policy where it may keep victims."""
    policy = refusal.retry_at is not None or refusal.reason == FORBIDDEN
    found = snapshot.exemptions.source if policy else None, snapshot.queues.source
    return tuple(one for one in found if one is not None)


def _closed(models: Sequence[Model]) -> str:
    """Say what keeps racks or zones closed to members, and how many may be evicted for it; else empty."""
    reasons = {rule.reason for model in models for rule in model.rooms if rule.closes and rule.closed.any()}
    if not reasons:
        return ""
    most = models[0].snapshot.exemptions.policy.cross_node.most_victims
    return (
        f"; nodes are closed by {' and '.join(sorted(reasons))}, and crossNode.mostVictims lets "
        f"{counted(most, 'pod')} go on nodes without members"
    )


def _is_forbidden(model: Model) -> bool:
    """Report whether it is the policy that keeps members from the room that there is with all gone.

    Its bound of an order's victims does for members of one kind that no rule and no unit ties to other nodes
    than their own, where every plan has more. So may what keeps pods together.
    """
    tied = model.spreads or model.affinities or any(not rule.alone for rule in model.rooms)
    if len(model.counts) > 1 or tied or model.unit[model.removable].any():
        return False
    return _keeps_together(model) or fewest_victims(model, most_alone(model)) > model.most_victims


def _spares(model: Model, gang: GangQuestion) -> bool:
    """Report whether a rule keeps pods of lower priority, or a guarantee those that queues take back.

    Time or another object may end that.
    """
    priority, tree = gang.classes[0].question.preemptor.priority, model.snapshot.queues.tree
    reclaimable = model.priority == priority if tree is not None and tree.reclaim else False
    return bool((((model.priority < priority) | reclaimable) & ~model.removable).any())


def _keeps_together(model: Model) -> bool:
    """Report whether hard budgets or guarantees may keep some of the pods of which each by itself may go.

    How many they let go changes with pods elsewhere.
    """
    hard = model.has_budgets and bool(model.snapshot.exemptions.policy.hard_budgets)
    return hard or bool(model.margins)


def _lacks(model: Model) -> dict[str, int]:
    """Return of which resources there is too little even for members one by one, and how much."""
    emptied = model.emptied()
    names = {number: name for name, number in model.snapshot.columns.resources.items()}
    need = model.need.max(axis=0)
    found = {}
    for place, number in enumerate(model.asked.tolist()):
        if need[place]:
            usable = model.allowed.any(axis=0)
            room = int((np.maximum(emptied[place][usable], 0) // need[place]).sum())
            if room < model.must and number in names:
                found[names[number]] = int((model.must - room) * need[place])
    return found
