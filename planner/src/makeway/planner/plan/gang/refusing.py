"""Why there is no plan for a group: for how many members there is room, and what is missing for others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from makeway.core.text import counted
from makeway.planner.plan.gang.levels import bound_of
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.refusal.text import FORBIDDEN, NO_ROOM, NOT_FOUND, REFUSED_AGAIN, amount_of
from makeway.planner.plan.result import PlanRefusal, Scope
from makeway.planner.plan.terminating import overdue_text


def refused(
    scope: Scope,
    gang: GangQuestion,
    placeable: int,
    *,
    left_out: tuple[str, ...],
    models: Sequence[Model],
    whole: bool,
    now: datetime,
) -> PlanRefusal:
    """Return the refusal. It is final only where no plan can be: else places were not found.

    `placeable`: members for which places were found in the best domain. `models`: of the domains; `whole`:
    there are no others.
    """
    within = f" within one {' and '.join(gang.topology)}" if gang.topology else ""
    bounds = [(*bound_of(model), model) for model in models]
    most, cause, nearest = max(bounds, key=lambda one: one[0], default=(0, "", None))
    retry_at = now + REFUSED_AGAIN if any(_spares(model, gang) for model in models) else None
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
        if nearest is not None and (late := overdue_text(nearest.snapshot, set(nearest.names), now)):
            message += f"; {late}"
        return PlanRefusal(
            scope, NO_ROOM, message, placeable=most, left_out=left_out, retry_at=retry_at, missing=missing
        )
    if whole and all(_is_searched(model) for model in models):
        message = (
            f"there would be room for {counted(gang.must_place, 'pod')} of group {gang.name}{within}, but "
            "not within the policy's bounds for one plan"
        )
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


def _closed(models: Sequence[Model]) -> str:
    """Say what keeps racks or zones closed to members, and how many pods may go for it; else empty."""
    reasons = {
        rule.reason
        for model in models
        for rule in model.rooms
        if rule.closes and ((rule.domains >= 0) & (rule.room[rule.domains] < rule.need)).any()
    }
    if not reasons:
        return ""
    most = models[0].snapshot.exemptions.policy.cross_node.most_victims
    return (
        f"; nodes are closed by {' and '.join(sorted(reasons))}, and crossNode.mostVictims lets "
        f"{counted(most, 'pod')} go on nodes without members"
    )


def _is_searched(model: Model) -> bool:
    """Report whether nothing but the policy can keep members from the room that there is with all gone.

    So it is for members of one kind that no rule and no unit ties to other nodes than their own. With units
    another plan may need fewer victims.
    """
    tied = model.spreads or model.affinities or any(not rule.alone for rule in model.rooms)
    return len(model.counts) == 1 and not tied and not model.unit[model.removable].any()


def _spares(model: Model, gang: GangQuestion) -> bool:
    """Report whether a rule keeps pods of lower priority, or a guarantee those that queues take back.

    Time or another object may end that.
    """
    priority, tree = gang.classes[0].question.preemptor.priority, model.snapshot.queues.tree
    reclaimable = model.priority == priority if tree is not None and tree.reclaim else False
    return bool((((model.priority < priority) | reclaimable) & ~model.removable).any())


def _lacks(model: Model) -> dict[str, int]:
    """Return of which resources there is too little even for members one by one, and how much."""
    emptied = model.emptied(model.removable)
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
