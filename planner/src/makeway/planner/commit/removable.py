"""Which pods of a commit may be evicted: each by itself, as units, and all of them together. Pure.

The rules are those of plans, which look at nodes and leave open which of their pods go. A commit names the
pods, on whichever nodes, so here they are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.policy.rules import lower_rule
from makeway.planner.plan.constraints.budgets import debits
from makeway.planner.plan.constraints.queues import margins_of, own_queues
from makeway.planner.plan.groups import PlanGroups
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, RemovablePod
from makeway.planner.plan.unfiltered import answer
from makeway.planner.plan.who_preempts import who_preempts
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot


def removable_pods(
    snapshot: Snapshot,
    question: Question,
    victims: Sequence[PodRecord],
    now: datetime,
    *,
    members: Sequence[PodRecord] = (),
    preempting: GroupKey | None = None,
) -> dict[str, RemovablePod]:
    """Return those of some bound pods that may be evicted for a preemptor if all others stay, by UID.

    `question`: its preemptor, and what is in flight. `members`: of the group `preempting`, where it is one.
    Budgets are charged in the order of importance, and guarantees are looked at once, with all victims gone.
    O(victims · log + units + budgets + queues).
    """
    priority, micros = question.preemptor.priority, microseconds(now)
    budgets, groups = snapshot.budgets, snapshot.groups
    rules = who_preempts(snapshot, question, micros, members=members, group=preempting)
    taken = debits(snapshot, (*question.in_flight, *question.leaving))
    planning = PlanGroups(snapshot, question, rules, taken, margins_of(snapshot, question, members=members))
    undecided = {name for name in snapshot.undecided if snapshot.exemptions.policy.has_hard_budgets(name)}
    guaranteed = _guaranteed(snapshot, question, victims, members)
    ordered = sorted(victims, key=lambda one: one.importance)
    sets = np.array([snapshot.budget_set(one.uid) for one in ordered], np.int64)
    hard, spent = budgets.hard(sets).tolist(), budgets.exhausted(sets, taken).tolist()
    charges = ({number: 1} if number else {} for number in sets.tolist())
    found: dict[str, RemovablePod] = {}
    for pod, violating, is_hard, is_spent in zip(
        ordered, budgets.violations(charges, taken), hard, spent, strict=True
    ):
        group = groups.of(pod)
        unit = None if group is None else group.unit
        stays = (
            not rules.reaches(pod)
            or (is_hard and (violating or is_spent))
            or pod.namespace in undecided
            or pod.uid in guaranteed
            or rules.exemption_of(pod).applies(priority, micros)
            or (group is not None and (group.unknown or group.applying))
            or (unit is not None and planning.planned(unit.number).kept)
        )
        if not stays:
            found[pod.uid] = RemovablePod(
                pod=pod,
                rule=lower_rule(pod.facts, priority),
                victim=True,
                pdb_violating=bool(violating),
                unit="" if unit is None else str(unit.key),
            )
    return found


def _guaranteed(
    snapshot: Snapshot, question: Question, victims: Sequence[PodRecord], members: Sequence[PodRecord]
) -> set[str]:
    """Return which pods would, all gone together, leave a queue below its guarantee, by UID.

    Not in the preemptor's own queue, and those above it.
    """
    queues = snapshot.queues
    if queues.tree is None:
        return set()
    own = own_queues(snapshot, members or (question.preemptor,))
    kept: set[str] = set()
    gone = (one.uid for one in victims)
    usage, _ = queues.without({*question.in_flight, *question.leaving, *gone})
    for queue in queues.tree:
        if queue.number in own:
            continue
        held = usage.of(queue.number)
        below = [name for name, least in queue.guaranteed.items() if held.get(name, 0) < least]
        for pod in victims if below else ():
            inside = queue.number <= queues.leaf_of(pod.uid) < queue.below
            if inside and any(pod.requests.get(name) for name in below):
                kept.add(pod.uid)
    return kept


def chosen_for_daemonset(
    snapshot: Snapshot, cache: PlanCache, question: Question, going: Collection[str], now: datetime
) -> dict[str, RemovablePod]:
    """Return the pods that the rules for a DaemonSet's pod choose on its node, by UID. Costs a plan.

    `going`: UIDs of the victims. Where those are not chosen, the pod may need what a commit does not tell, or
    not all that it requests: then all that the rules let go, if so many may.
    """
    for asked in (question, replace(question, ignore_columns=True)):
        found = answer(snapshot, asked, now, cache)
        nodes = (*found.candidates, *found.unmodelled) if isinstance(found, Plan) else ()
        chosen = {one.pod.uid: one for node in nodes for one in node.removable}
        if chosen.keys() >= {*going} and all(len(going) <= node.max_victims for node in nodes):
            return chosen
    return {}
