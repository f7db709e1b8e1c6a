"""Plan for a pod group: a pure function from the snapshot and a question to a plan or a refusal.

First the least priority of victims at which the group fits, and then the cheapest steps at it (`fill`); a
bounded search makes it better (`search`). Of topology constraints each domain is priced so, and the cheapest
taken. What is returned has been placed member by member under every rule that has a column.

Where there is no plan: for how many members there is room, and what is missing for others.

Classes of members that nothing tells apart are taken as one: members of two templates with other names or
labels are often alike in all that a plan looks at, and a search has far fewer combinations to look at then.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final, TypeVar

import numpy as np

from makeway.planner.plan.constraints.tally import CHUNK_STEPS, Allowance, AllowanceUsedUp
from makeway.planner.plan.eligibility import eligible, potential_nodes
from makeway.planner.plan.gang.blockers import closes, with_blockers
from makeway.planner.plan.gang.domains import MOST_DOMAINS, cannot_beat, in_order, parts_of
from makeway.planner.plan.gang.draft import Draft, price_of
from makeway.planner.plan.gang.fill import extra
from makeway.planner.plan.gang.levels import most_alone
from makeway.planner.plan.gang.model import AffinityRule, Model, RoomRule, SpreadRule, Work
from makeway.planner.plan.gang.modelling import modelling, most_by_queues
from makeway.planner.plan.gang.question import GangQuestion
from makeway.planner.plan.gang.refusing import depends_on, refusing
from makeway.planner.plan.gang.search import rank_of
from makeway.planner.plan.gang.solving import beginning, bettering, is_least
from makeway.planner.plan.gang.written import Found, seen_again, written
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import modelled
from makeway.planner.plan.price import Price
from makeway.planner.plan.refusal.text import (
    NEVER,
    NO_NODES,
    NO_ROOM,
    NOT_OFFERED,
    guarantees_text,
)
from makeway.planner.plan.result import GangDomain, GangPlan, PlanRefusal, Scope
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.state import Snapshot

MOST_DOMAIN_STEPS: Final = 2000
"""Members that are placed on trial in domains after the first that has room."""

NOT_SEEN: Final = "MemberNotSeen"
"""The planner has not yet seen a pod of the group."""

_Begun = tuple[Scope, Model, tuple[Mapping[str, int], ...], tuple[str, ...]]

_Rule = TypeVar("_Rule", RoomRule, SpreadRule, AffinityRule)


def plan_gang(
    snapshot: Snapshot,
    gang: GangQuestion,
    now: datetime,
    cache: PlanCache | None = None,
) -> GangPlan | PlanRefusal:
    """Decide where all members go and which pods must go for them.

    O(slots · nodes · members of a node), besides O(slots · members of a node) for each node that is used.
    """
    steps = planning_gang(snapshot, gang, now, PlanCache() if cache is None else cache)
    return next(found for found in steps if found is not None)


def planning_gang(
    snapshot: Snapshot,
    gang: GangQuestion,
    now: datetime,
    cache: PlanCache,
) -> Generator[GangPlan | PlanRefusal | None, None, None]:
    """Plan as `plan_gang` does, and pause with None now and then; the snapshot may change there.

    Where it has changed, what was found is looked at again on its own nodes, and where it does not hold any
    more another plan is made: whoever calls ends that where time runs out.

    Raises:
        ValueError: the cache is of another snapshot.
    """
    cache.bind(snapshot)
    for one in gang.each[1:]:
        eligible(snapshot, one.constraints, np.zeros(0, np.int64))  # remembered
        yield None
    while True:
        revision = snapshot.revision
        soon = cache.awaited.at(snapshot, now)
        plan = yield from _attempt(snapshot, gang.awaiting(soon), now, cache)
        if isinstance(plan, PlanRefusal) and not soon.complete:
            # A refusal, too: what it says of the room at most holds for all pods that leave.
            room = cache.awaited.at(snapshot, now, patient=True)
            plan = yield from _attempt(snapshot, gang.awaiting(room), now, cache)
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
) -> Generator[None, None, GangPlan | PlanRefusal | None]:
    """Return a plan or a refusal; None where a plan was found that does not hold any more."""
    revision = snapshot.revision
    begun = yield from _begun(snapshot, gang, now, cache)
    if isinstance(begun, PlanRefusal):
        return begun
    scope, model, needs, left_out = begun
    best: tuple[Model, Draft, tuple[tuple[str, str], ...]] | None = None
    price = Price()
    placeable = 0
    priced: list[GangDomain] = []
    parts = yield from parts_of(model, gang)
    steps, work = 0, Work()
    for level, domains, part in parts:
        yield
        if steps >= MOST_DOMAIN_STEPS or (best is not None and cannot_beat(model, level, price)):
            continue
        kinds = kinds_of(part)
        one = kinds.model
        if best is not None and is_least(one, most_alone(one), price):
            continue
        steps += part.must if best is not None else 0
        share = work if len(parts) == 1 else work.part()
        mine = share.part() if closes(one) else share
        first = yield from beginning(one, Draft(), mine)
        draft = yield from bettering(first, mine)
        room = model.must - (first.missing if draft is None else 0)
        if (opened := (yield from with_blockers(one, draft, share))) is not None:
            draft, room = opened, model.must
        draft = draft and kinds.apart(part.counts, draft)
        priced.append(GangDomain(domains, room, None if draft is None else price_of(part, draft)))
        placeable = max(placeable, room)
        if draft is None:
            continue
        if best is None or rank_of(part, draft) < rank_of(best[0], best[1]):
            best, price = (part, draft, domains), price_of(part, draft)
    if best is None:
        scope = replace(scope, revision=snapshot.revision)
        models, whole = [part for _, _, part in parts], len(parts) < MOST_DOMAINS
        refusal = yield from refusing(
            scope, gang, placeable, left_out=left_out, models=models, whole=whole, now=now
        )
        return replace(
            refusal,
            message=refusal.message + guarantees_text(model.preempting),
            depends_on=depends_on(snapshot, refusal),
            priced=in_order(priced, gang, model.objective),
        )
    part, draft, domains = best
    own, record = all(one.question.may_preempt for one in gang.classes), snapshot.groups.record_of(gang.name)
    if (draft.singles or draft.units) and not (own if record is None else record.lets_preempt(own)):
        message = f"group {gang.name} has preemptionPolicy Never"
        return PlanRefusal(scope, NEVER, message, placeable=placeable, left_out=left_out)
    found = Found(part, (yield from extra(part, draft)), domains, needs, left_out)
    if snapshot.revision != revision:
        again = yield from seen_again(snapshot, gang, found, now, cache)
        if again is None:
            return None
        found = again
    plan = yield from written(found, gang, replace(scope, revision=snapshot.revision))
    return replace(plan, priced=in_order(priced, gang, model.objective))


def _begun(
    snapshot: Snapshot,
    gang: GangQuestion,
    now: datetime,
    cache: PlanCache,
) -> Generator[None, None, _Begun | PlanRefusal]:
    """Return what was looked at, the model, what each class needs, and what is left out; or a refusal."""
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
        most, cause = most_by_queues(snapshot, gang)
        if most < gang.must_place:
            message = (
                f"in empty queues there would be room for at most {most} of the {gang.must_place} pods that "
                f"group {gang.name} needs: {cause}"
            )
            refusal = PlanRefusal(scope, NO_ROOM, message, placeable=most)
            return replace(refusal, depends_on=depends_on(snapshot, refusal))
        tallies = cache.tallies.within(Allowance(CHUNK_STEPS))
        try:
            model = yield from modelling(snapshot, gang, needs, rows_of, now=now, tallies=tallies)
        except AllowanceUsedUp:
            yield
            continue
        return scope, model, tuple(needs), tuple(dict.fromkeys((*model.left_out, *uncounted)))


@dataclass(frozen=True, slots=True)
class Kinds:
    """`model`: the question with one class for each kind. `of`: the classes of each kind, as they were."""

    model: Model
    of: tuple[tuple[int, ...], ...]

    def apart(self, counts: tuple[int, ...], draft: Draft) -> Draft:
        """Return a draft by the classes as they were. `counts`: how many members of each wait."""
        members: dict[tuple[int, int], int] = {}
        left = list(counts)
        for (node, kind), count in sorted(draft.members.items()):
            still = count
            for cls in self.of[kind]:
                if come := min(still, left[cls]):
                    members[node, cls] = come
                    left[cls] -= come
                    still -= come
        return Draft(members, draft.singles, draft.units)


def kinds_of(model: Model) -> Kinds:
    """Put classes that are alike together. O(slots · nodes · rules) for each that needs what another does."""
    of: list[tuple[int, ...]] = []
    for cls in range(len(model.counts)):
        at = next((at for at, kind in enumerate(of) if _alike(model, kind[0], cls)), len(of))
        of[at : at + 1] = [(*(of[at] if at < len(of) else ()), cls)]
    first = [kind[0] for kind in of]
    if len(first) < len(model.counts):
        model = replace(
            model,
            need=model.need[first],
            allowed=model.allowed[first],
            counts=tuple(sum(model.counts[cls] for cls in kind) for kind in of),
            rooms=_of_kinds(model.rooms, first),
            spreads=_of_kinds(model.spreads, first),
            affinities=_of_kinds(model.affinities, first),
        )
    return Kinds(model, tuple(of))


def _of_kinds(rules: tuple[_Rule, ...], first: list[int]) -> tuple[_Rule, ...]:
    """Return the rules of the first class of each kind."""
    return tuple(
        replace(rule, cls=first.index(rule.cls), take=rule.take[first]) for rule in rules if rule.cls in first
    )


def _alike(model: Model, one: int, other: int) -> bool:
    """Report whether members of two classes can be put in each other's places."""
    rules: list[RoomRule | SpreadRule | AffinityRule]
    rules = [*model.rooms, *model.spreads, *model.affinities]

    def asked(cls: int) -> list[Any]:
        own = (
            [type(rule), *(getattr(rule, field.name) for field in fields(rule) if field.name != "cls")]
            for rule in rules
            if rule.cls == cls
        )
        return [model.need[cls], model.allowed[cls], [rule.take[cls] for rule in rules], *own]

    return _same(asked(one), asked(other))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)
