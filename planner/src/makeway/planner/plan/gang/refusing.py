"""Why there is no plan for a group: for how many members there is room, and what is missing for others."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from makeway.core.text import counted
from makeway.planner.plan.gang.levels import is_out_of_question
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.gang.result import GangRefusal
from makeway.planner.plan.refusal.text import FORBIDDEN, NO_ROOM, NOT_FOUND, REFUSED_AGAIN, amount_of
from makeway.planner.plan.result import Scope
from makeway.planner.plan.terminating import overdue_text


def refused(
    scope: Scope,
    gang: GangQuestion,
    placeable: int,
    *,
    left_out: tuple[str, ...],
    nearest: Model | None,
    now: datetime,
) -> GangRefusal:
    """Return the refusal. `placeable`: members for which there is room in `nearest`, the best domain."""
    within = f" within one {' and '.join(gang.topology)}" if gang.topology else ""
    retry_at = None
    if nearest is not None and _spares(nearest, gang):
        retry_at = now + REFUSED_AGAIN
    if placeable >= gang.must_place:
        message = (
            f"there would be room for {counted(gang.must_place, 'pod')} of group {gang.name}{within}, but "
            "not within the policy's bounds for one plan"
        )
        return GangRefusal(scope, FORBIDDEN, message, placeable, left_out, retry_at=retry_at)
    if nearest is not None and _may_have_missed(nearest) and not is_out_of_question(nearest):
        message = (
            f"places were found for {placeable} of the {gang.must_place} pods that group {gang.name} needs"
            f"{within}, and it is not certain that there are none for all"
        )
        return GangRefusal(scope, NOT_FOUND, message, placeable, left_out, retry_at=retry_at)
    message = (
        f"with all pods gone that may go there is room for {placeable} of the {gang.must_place} pods that "
        f"group {gang.name} needs{within}"
    )
    missing = _lacks(nearest) if nearest is not None else {}
    if missing:
        message += f"; missing even then: {', '.join(f'{k} {amount_of(k, v)}' for k, v in missing.items())}"
    if nearest is not None and (late := overdue_text(nearest.snapshot, set(nearest.names), now)):
        message += f"; {late}"
    return GangRefusal(scope, NO_ROOM, message, placeable, left_out, retry_at=retry_at, missing=missing)


def _may_have_missed(model: Model) -> bool:
    """Report whether the search may have missed places.

    It may of members of several kinds, and where a spread or a required affinity counts pods that may go: for
    a spread these are looked for on the members' own nodes alone, and what members need near them stays.
    """
    uses = [*(rule.use for rule in model.spreads), *(rule.use for rule in model.affinities)]
    return len(model.counts) > 1 or any(bool((use[model.removable] > 0).any()) for use in uses)


def _spares(model: Model, gang: GangQuestion) -> bool:
    """Report whether a rule keeps pods of lower priority: time or another object may end that."""
    lower = model.priority < gang.classes[0].question.preemptor.priority
    return bool((lower & ~model.removable).any())


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
