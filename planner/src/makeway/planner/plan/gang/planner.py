"""Plan for a pod group: a pure function from the snapshot and a question to a plan or a refusal.

First the least priority of victims at which the group fits, and then the cheapest steps at it (`fill`); a
bounded search makes it better (`search`). Of topology constraints each domain is priced so, and the cheapest
taken. What is returned has been placed member by member under every rule that has a column.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import numpy as np

from makeway.core.k8s.importance import microseconds
from makeway.core.policy.document import GroupTerm
from makeway.planner.plan.cache import PlanCache
from makeway.planner.plan.constraints.tally import CHUNK_STEPS, Allowance, AllowanceUsedUp
from makeway.planner.plan.eligibility import eligible, potential_nodes
from makeway.planner.plan.gang.blockers import closes, with_blockers
from makeway.planner.plan.gang.domains import MOST_DOMAINS, cannot_beat, in_order, parts_of
from makeway.planner.plan.gang.draft import Draft, price_of
from makeway.planner.plan.gang.fill import extra
from makeway.planner.plan.gang.kinds import kinds_of
from makeway.planner.plan.gang.levels import most_alone
from makeway.planner.plan.gang.model import Model
from makeway.planner.plan.gang.modelling import modelling
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.gang.refusing import refused
from makeway.planner.plan.gang.result import GangPlan
from makeway.planner.plan.gang.search import rank_of
from makeway.planner.plan.gang.solving import is_least, solve
from makeway.planner.plan.gang.work import Work
from makeway.planner.plan.gang.written import Found, seen_again, written
from makeway.planner.plan.lost_work import largest_of, lost_work_of
from makeway.planner.plan.planner import modelled
from makeway.planner.plan.refusal.text import (
    NEVER,
    NO_NODES,
    NO_ROOM,
    NOT_OFFERED,
)
from makeway.planner.plan.result import GangDomain, PlanRefusal, Scope
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.state import Snapshot

MOST_DOMAIN_STEPS: Final = 2000
"""Members that are placed on trial in domains after the first that has room."""

NOT_SEEN: Final = "MemberNotSeen"
"""The planner has not yet seen a pod of the group."""


def plan_gang(
    snapshot: Snapshot,
    gang: GangQuestion,
    now: datetime,
    cache: PlanCache | None = None,
    *,
    objective: tuple[GroupTerm, ...] | None = None,
) -> GangPlan | PlanRefusal:
    """Decide where all members go and which pods must go for them.

    O(slots · nodes · members of a node), besides O(slots · members of a node) for each node that is used.
    """
    steps = planning_gang(snapshot, gang, now, PlanCache() if cache is None else cache, objective=objective)
    return next(found for found in steps if found is not None)


def planning_gang(
    snapshot: Snapshot,
    gang: GangQuestion,
    now: datetime,
    cache: PlanCache,
    *,
    objective: tuple[GroupTerm, ...] | None = None,
) -> Generator[GangPlan | PlanRefusal | None, None, None]:
    """Plan as `plan_gang` does, and pause with None now and then; the snapshot may change there.

    Where it has changed, what was found is looked at again on its own nodes, and where it does not hold any
    more another plan is made: whoever calls ends that where time runs out.

    Raises:
        ValueError: the cache is of another snapshot.
    """
    cache.bind(snapshot)
    while True:
        terms = objective or snapshot.exemptions.policy.groups.objective
        revision = snapshot.revision
        soon = cache.awaited.at(snapshot, now)
        plan = yield from _attempt(snapshot, gang.awaiting(soon), now, cache, terms)
        if isinstance(plan, PlanRefusal) and not soon.complete:
            # A refusal, too: what it says of the room at most holds for all pods that leave.
            room = cache.awaited.at(snapshot, now, patient=True)
            plan = yield from _attempt(snapshot, gang.awaiting(room), now, cache, terms)
        if isinstance(plan, PlanRefusal):
            message, retry_at = gang.left_out.told(plan.message, plan.retry_at)
            plan = replace(plan, message=message, retry_at=retry_at)
        if plan is not None:
            yield replace(plan, changed=snapshot.revision != revision)
            return


def _attempt(
    snapshot: Snapshot,
    gang: GangQuestion,
    now: datetime,
    cache: PlanCache,
    objective: tuple[GroupTerm, ...],
) -> Generator[None, None, GangPlan | PlanRefusal | None]:
    """Return a plan or a refusal; None where a plan was found that does not hold any more."""
    revision = snapshot.revision
    begun = yield from _begun(snapshot, gang, now, cache, weighs="lostWork" in objective)
    if isinstance(begun, PlanRefusal):
        return begun
    scope, model, needs, left_out = begun
    best: tuple[Model, Draft, tuple[tuple[str, str], ...]] | None = None
    placeable = 0
    priced: list[GangDomain] = []
    parts = yield from parts_of(model, gang)
    steps, work = 0, Work()
    for level, domains, part in parts:
        yield
        if steps >= MOST_DOMAIN_STEPS or (best is not None and cannot_beat(level, *best[:2], objective)):
            continue
        kinds = kinds_of(part)
        one = kinds.model
        if best is not None and is_least(one, most_alone(one), price_of(*best[:2]), objective):
            continue
        steps += part.must if best is not None else 0
        share = work if len(parts) == 1 else work.part()
        solved = yield from solve(one, Draft(), objective, share.part() if closes(one) else share)
        draft, room = solved.draft, model.must - solved.missing
        if (opened := (yield from with_blockers(one, draft, objective, share))) is not None:
            draft, room = opened, model.must
        draft = draft and kinds.apart(part.counts, draft)
        priced.append(GangDomain(domains, room, None if draft is None else price_of(part, draft)))
        placeable = max(placeable, room)
        if draft is None:
            continue
        if best is None or rank_of(part, draft, objective) < rank_of(best[0], best[1], objective):
            best = (part, draft, domains)
    if best is None:
        scope = replace(scope, revision=snapshot.revision)
        models, whole = [part for _, _, part in parts], len(parts) < MOST_DOMAINS
        refusal = refused(scope, gang, placeable, left_out=left_out, models=models, whole=whole, now=now)
        return replace(refusal, priced=in_order(priced, gang, objective))
    part, draft, domains = best
    own, record = all(one.question.may_preempt for one in gang.classes), snapshot.groups.record_of(gang.name)
    if (draft.singles or draft.units) and not (own if record is None else record.lets_preempt(own)):
        message = f"group {gang.name} has preemptionPolicy Never"
        return PlanRefusal(scope, NEVER, message, placeable=placeable, left_out=left_out)
    draft = yield from extra(part, draft, objective)
    found = Found(part, draft, domains, needs, left_out)
    if snapshot.revision != revision:
        again = yield from seen_again(snapshot, gang, found, now, cache)
        if again is None:
            return None
        found = again
    plan = yield from written(found, gang, replace(scope, revision=snapshot.revision))
    return replace(plan, priced=in_order(priced, gang, objective))


_Begun = tuple[Scope, Model, tuple[Mapping[str, int], ...], tuple[str, ...]]


def _begun(
    snapshot: Snapshot, gang: GangQuestion, now: datetime, cache: PlanCache, *, weighs: bool
) -> Generator[None, None, _Begun | PlanRefusal]:
    """Return what was looked at, the model, what each class needs, and what is left out; or a refusal.

    `weighs`: lost work counts, by the measure of a member that asks for as much as the largest do.
    """
    while True:
        needs: list[Mapping[str, int]] = []
        rows_of: list[Ints] = []
        uncounted: list[str] = []
        scope = Scope(snapshot.revision, snapshot.node_count, 0)
        for one in gang.classes:
            question = one.question
            if question.preemptor.uid not in snapshot.pods:
                return PlanRefusal(scope, NOT_SEEN, f"a pod of group {gang.name} has not been seen yet")
            asked, missing, left_out = modelled(snapshot, question.needs)
            # No filter of kube-scheduler has looked at members one by one where they are simulated.
            absent = {name for name, amount in question.needs.items() if amount} - asked.keys()
            absent = {name for name in absent if name not in snapshot.node_resources}
            missing = missing or min(absent - snapshot.served_by_devices(absent), default="")
            if missing:
                return PlanRefusal(scope, NOT_OFFERED, f"no node offers {missing}")
            uncounted += left_out
            needs.append(asked)
            named, _ = potential_nodes(snapshot, question)
            rows_of.append(eligible(snapshot, question.constraints, named))
        potential = int(np.unique(np.concatenate(rows_of)).size) if rows_of else 0
        scope = replace(scope, nodes_potential=potential)
        if not potential:
            return PlanRefusal(scope, NO_NODES, f"no node may be helped for group {gang.name}")
        if not 0 < gang.must_place <= gang.total:
            message = f"group {gang.name} has {gang.total} pods that wait, and needs {gang.must_place}"
            return PlanRefusal(scope, NO_ROOM, message)
        tallies = cache.tallies.within(Allowance(CHUNK_STEPS))
        micros = microseconds(now)
        try:
            lost_work = lost_work_of(snapshot.exemptions.policy.lost_work, largest_of(needs), micros)
            model = yield from modelling(
                snapshot,
                gang,
                needs,
                rows_of,
                now_micros=micros,
                tallies=tallies,
                lost_work=lost_work if weighs else None,
            )
        except AllowanceUsedUp:
            yield
            continue
        return scope, model, tuple(needs), tuple(dict.fromkeys((*model.left_out, *uncounted)))
