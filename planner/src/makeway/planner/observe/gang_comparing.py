"""What is compared of a group: its plan and its pair as both sides, judged by the terms of the plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

from makeway.bus.comparison import ComparedGroup, Comparison
from makeway.bus.messages import Preemptor
from makeway.core.comparison import Judgement, RelativeRank
from makeway.core.policy.document import GroupTerm
from makeway.planner.observe.comparing import BothChoices, Certainty, Observed, comparison, gone
from makeway.planner.observe.gang_marks import ExpectedGang
from makeway.planner.observe.gang_pairing import ComparedGang
from makeway.planner.plan.constraints.budgets import debits_before
from makeway.planner.plan.gang.decision import GangDecision
from makeway.planner.plan.gang.reply import refusal_of
from makeway.planner.plan.gang.result import GangPlan, GangRefusal
from makeway.planner.snapshot.state import Snapshot

ObservedGang: TypeAlias = Observed[GangDecision]

RULE_OF: Final[Mapping[GroupTerm, str]] = {
    "budgets": "fewest-pdb-violations",
    "highestPriority": "lowest-highest-priority",
    "groups": "fewest-groups-broken",
    "highestVictims": "fewest-highest-priority-victims",
    "prioritySum": "lowest-priority-sum",
    "victims": "fewest-victims",
}
"""What decides between two choices, as comparisons of pods name it."""


def observed_gang(
    snapshot: Snapshot, decision: GangDecision, certainty: Certainty | None = None
) -> ObservedGang:
    """Keep a decision with what its comparison will need of the snapshot that it was made on."""
    result = decision.result
    own = tuple(gone(snapshot, one.pod) for one in result.victims) if isinstance(result, GangPlan) else None
    return Observed(decision, own, certainty)


def expected_gang(snapshot: Snapshot, decision: GangDecision) -> ExpectedGang:
    """Return what pairing needs to know of a decision. O(budgets + victims)."""
    group, result = decision.request.group, decision.result
    first = decision.question.classes[0].question
    going = first.leaving | first.in_flight.keys()
    taken = debits_before(snapshot, going, first.allowed_before)
    budgets = (snapshot.budgets.get(key) for key in snapshot.budgets.keys())  # noqa: SIM118 - no mapping
    return ExpectedGang(
        decision_id=decision.decision_id,
        group=f"{group.namespace}/{group.name}",
        priority=group.priority,
        scheduler=first.scheduler_name,
        at=decision.at,
        victims=frozenset(one.pod.uid for one in (result.victims if isinstance(result, GangPlan) else ())),
        allowed={one.key: one.allowed - taken.get(one.key, 0) for one in budgets if one is not None},
    )


def compare_gangs(
    one: Judgement, other: Judgement, objective: Iterable[GroupTerm]
) -> tuple[RelativeRank, str]:
    """Return how one choice for a group stands beside another, and the rule that decides; equal by none."""
    for term in objective:
        own, others = _term(one, term), _term(other, term)
        if own != others:
            return ("better" if own < others else "worse"), RULE_OF[term]
    return "equal", ""


def comparison_of_gang(
    seen: ObservedGang, pair: ComparedGang, planner: str, now: datetime
) -> Comparison | None:
    """Return what the pair of a group comes to; None where there is nothing to compare."""
    decision, result, group = seen.decision, seen.decision.result, seen.decision.request.group
    plan = result if isinstance(result, GangPlan) else None
    sides = BothChoices(
        preemptor=Preemptor(
            namespace=group.namespace,
            name=group.name,
            uid=group.uid,
            priority=group.priority,
            scheduler_name=pair.expected.scheduler,
        ),
        own_nodes=tuple(sorted({one.node for one in plan.placements})) if plan is not None else (),
        own_victims=tuple((one.pod, one.rule) for one in plan.victims) if plan is not None else (),
        nodes=pair.nodes,
        rank=partial(compare_gangs, objective=decision.objective),
        refusal=refusal_of(result) if isinstance(result, GangRefusal) else None,
        group=ComparedGroup(
            members=decision.question.total,
            must_place=decision.question.must_place,
            objective=decision.objective,
        ),
    )
    return comparison(seen, pair, sides, planner, now)


def _term(judgement: Judgement, term: GroupTerm) -> int:
    match term:
        case "budgets":
            return len(judgement.violating)
        case "highestPriority":
            return judgement.highest_priority
        case "groups":
            return judgement.groups_broken
        case "highestVictims":
            return judgement.highest_victims
        case "prioritySum":
            return judgement.priority_sum
        case "victims":
            return judgement.victims
