"""From masks and numbers to named pods: ranked nodes of all batches, written down for the best few."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from makeway.core.policy.rules import PreemptionPair, Verdict, judge, lower_rule
from makeway.planner.plan.batch import NodeBatch
from makeway.planner.plan.constraints.layers import BatchLayers
from makeway.planner.plan.constraints.queues import QUEUE_GUARANTEED, guarantee_of
from makeway.planner.plan.evaluate import Evaluation, PlanInputs, reprieve
from makeway.planner.plan.ranking import ONLY_CANDIDATE, Scores, count_awaited, joined, score
from makeway.planner.plan.refusal.exempt import HARD_BUDGET, MOST_EXEMPT, REFUSED, budget_detail
from makeway.planner.plan.result import ExemptPod, ExemptPods, PlanCandidate, RemovablePod
from makeway.planner.plan.terminating import verdict_of
from makeway.planner.plan.who_preempts import preemptor_facts
from makeway.planner.snapshot.columns import BUDGETS, Flags, Ints
from makeway.planner.snapshot.pod_groups import POD_GROUP
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.units import MOST_PODS

EXPLAINED = 3
"""Nodes of which it is written down which pods are exempt there."""


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Ranked nodes of one batch: their scores, their places in it, and which pods are victims there."""

    evaluated: EvaluatedBatch
    scores: Scores
    places: Ints
    victims: Flags
    violating: Flags
    awaited: dict[int, list[PodRecord]]


@dataclass(frozen=True, slots=True)
class EvaluatedBatch:
    """A batch with what was found on it, and all that turning it into candidates needs."""

    batch: NodeBatch
    found: Evaluation
    layers: BatchLayers
    inputs: PlanInputs

    def helped_candidates(self) -> CandidateBatch | None:
        """Return the nodes where removing pods, or awaiting others' removal, makes room; None without any."""
        places = np.flatnonzero(self.found.helps | self.found.waits)
        if not places.size:
            return None
        victims = self.found.victims[:, places]
        violating = self.found.violating[:, places]
        scores = self._score(places, victims, violating)
        awaited = self._needed(places)
        for at, pods in awaited.items():
            count_awaited(scores, at, pods)
        return CandidateBatch(self, scores, places, victims, violating, awaited)

    def unmodelled(self) -> CandidateBatch | None:
        """Return the nodes whose columns need no pod gone, ranked as if all removable pods went.

        None where there are none, which is the rule.
        """
        places = np.flatnonzero(self.found.fits & (self.found.removable.any(axis=0) | self.batch.awaits))
        return self._without_removable(places) if places.size else None

    def _without_removable(self, places: Ints) -> CandidateBatch:
        """Return nodes as if all removable pods went, and all awaited ones, none of them as a victim."""
        removable = self.found.removable[:, places]
        sets = np.where(removable, self.batch.columns.at(BUDGETS, places), 0)
        groups = self.found.groups
        if groups is None:
            violating = self.inputs.snapshot.budgets.violating(sets, self.inputs.debits)
        else:
            violating = groups.violating(sets, self.found.removable, places)
        scores = self._score(places, removable, violating)
        awaited = {
            at: self.batch.awaited[place]
            for at, place in enumerate(places.tolist())
            if place in self.batch.awaited
        }
        return CandidateBatch(self, scores, places, np.zeros_like(removable), violating, awaited)

    def sample(self, place: int) -> PlanCandidate | None:
        """Write down a node with all that may be removed there, whatever its columns say; None if nothing."""
        if not self.found.removable[:, place].any():
            return None
        ranked = self._without_removable(np.array([place]))
        return self.candidate(ranked, 0, "", explained=False)

    def candidate(
        self, ranked: CandidateBatch, at: int, decided_by: str, *, explained: bool
    ) -> PlanCandidate:
        """Write down one node: the pods that may go, in the order of reprieve, and the numbers.

        `explained`: also which of lower priority may not go, and why.
        """
        place = int(ranked.places[at])
        scores = ranked.scores
        violating, victims = ranked.violating[:, at].tolist(), ranked.victims[:, at].tolist()
        removable = self._removable(place, victims, violating)
        return PlanCandidate(
            node=self.inputs.snapshot.names[int(self.batch.rows[place])],
            removable=tuple(removable),
            awaited=self.inputs.question.awaited(ranked.awaited.get(at, ())),
            pdb_violations=sum(one.victim and one.pdb_violating for one in removable),
            highest_priority=int(scores.highest[at]) if scores.count[at] else 0,
            priority_sum=int(scores.priority_sum[at]),
            lost_work=int(scores.lost_work[at]),
            start_micros=int(scores.start[at]),
            decided_by=decided_by,
            exempt=self.exempt(place) if explained else ExemptPods(),
            max_victims=self.inputs.snapshot.exemptions.policy.limits.victims_per_order,
        )

    def _removable(self, place: int, victims: list[bool], violating: list[bool]) -> list[RemovablePod]:
        """Name the pods that may go, those that violate a budget first, each with what goes with it.

        Units that need not go are left out where they are too many pods for a message.
        """
        groups = self.found.groups
        blocks: list[tuple[bool, list[RemovablePod]]] = []
        named = 0
        lost = self._lost_work(place)
        for slot, pod in self.batch.pods(place, self.found.removable[:, place]):
            unit = None if groups is None else groups.units[int(groups.unit[slot, place])]
            victim, bad = victims[slot], violating[slot]
            if unit is None or groups is None:
                one = RemovablePod(
                    pod=pod,
                    rule=self._rule(pod),
                    victim=victim,
                    pdb_violating=bad,
                    lost_work=lost.get(slot, 0),
                )
                blocks.append((bad, [one]))
                continue
            if not groups.lead[slot, place] or (not victim and named + unit.size > MOST_PODS):
                continue
            named += unit.size
            charged = int(groups.charged[slot, place])
            members = [
                RemovablePod(
                    pod=member,
                    rule=self._rule(member),
                    victim=victim,
                    pdb_violating=bad and turn < charged,
                    unit=unit.name,
                    lost_work=self._lost_by(member),
                )
                for turn, member in enumerate(unit.members)
            ]
            blocks.append((bad, members))
        blocks.sort(key=lambda block: not block[0])
        return [one for _, block in blocks for one in block]

    def _lost_work(self, place: int) -> dict[int, int]:
        """Return what the removable pods of one node lose, by slot; nothing where that does not count."""
        weighed = self.found.lost_work
        if weighed is None:
            return {}
        slots = np.flatnonzero(self.found.removable[:, place])
        lost = weighed.of_pods(self.batch.columns, slots, np.full_like(slots, place)).at(weighed.second)
        return dict(zip(slots.tolist(), lost.tolist(), strict=True))

    def _lost_by(self, pod: PodRecord) -> int:
        """Return the same of one pod, wherever it runs."""
        weighed = self.found.lost_work
        return 0 if weighed is None else weighed.of(self.inputs.snapshot.exemptions.work_of(pod))

    def _rule(self, pod: PodRecord) -> str:
        return lower_rule(pod.facts, self.inputs.question.preemptor.priority)

    def exempt(self, place: int) -> ExemptPods:
        """Name the least important few of the pods that rules exempt on one node, with each one's verdict."""
        stays = self.found.lower[:, place] & ~self.found.removable[:, place]
        if not stays.any():
            return ExemptPods()
        kept = self.batch.pods(place, stays)
        least = kept[: -MOST_EXEMPT - 1 : -1]
        return ExemptPods(
            len(kept), tuple(ExemptPod(pod, self._verdict(slot, place, pod)) for slot, pod in least)
        )

    def _verdict(self, slot: int, place: int, pod: PodRecord) -> Verdict:
        """Return which rule exempts a pod, and why."""
        found, groups, columns = self.found, self.found.groups, self.batch.columns
        snapshot, question, rules = self.inputs.snapshot, self.inputs.question, self.inputs.rules
        if pod.terminating:
            return verdict_of(pod, self.inputs.now)
        if pod.uid in question.refused:
            return REFUSED
        if found.under_budget[slot, place]:
            return Verdict(False, HARD_BUDGET, budget_detail(snapshot, pod))
        if found.guaranteed[slot, place]:
            return Verdict(False, QUEUE_GUARANTEED, guarantee_of(snapshot, pod, question))
        if groups is not None and found.grouped[slot, place]:
            return Verdict(False, POD_GROUP, groups.why(slot, place, pod))
        if groups is not None and (exempting := groups.exempting(slot, place)) is not None:
            return exempting
        if columns.is_kept(slot, place):
            return rules.verdict(columns.rule_bits.item(slot, place), pod.start_micros)
        preemptor, party = preemptor_facts(snapshot, question), snapshot.exemptions.party_of(pod)
        pair = PreemptionPair(preemptor, pod.facts, self.inputs.now, party, rules.reclaimed(pod))
        return judge(snapshot.exemptions.rules, pair)

    def _score(self, places: Ints, victims: Flags, violating: Flags) -> Scores:
        names = self.inputs.snapshot.name_rank()[self.batch.rows[places]]
        return score(
            self.batch.columns,
            places,
            victims,
            violating,
            name_rank=names,
            remote=self.found.remote(places),
            lost_work=self.found.lost_work,
        )

    def _needed(self, places: Ints) -> dict[int, list[PodRecord]]:
        """Return, by place, the awaited pods that must go for the preemptor to fit; others may stay.

        O(awaited pods on these nodes · asked resources and layers).
        """
        waiting = {at: place for at, place in enumerate(places.tolist()) if place in self.batch.awaited}
        if not waiting:
            return {}
        found, nodes = self.found, places[list(waiting)]
        left = found.room[:, nodes] + (found.uses[:, :, nodes] * found.victims[:, nodes]).sum(axis=1)
        pods = [self.batch.awaited[place] for place in waiting.values()]
        back = np.zeros((left.shape[0], max(map(len, pods)), left.shape[1]), np.int64)
        there = np.zeros(back.shape[1:], np.bool_)
        for at, these in enumerate(pods):
            for turn, pod in enumerate(these):
                there[turn, at] = True
                back[:, turn, at] = self._taken(pod)
        every, none = np.arange(nodes.size), np.zeros_like(there)
        stays = there & ~reprieve(back, back.sum(axis=1) - left, there, none, every)
        return {
            at: [pod for turn, pod in enumerate(these) if not stays[turn, number]]
            for number, (at, these) in enumerate(zip(waiting, pods, strict=True))
        }

    def _taken(self, pod: PodRecord) -> Ints:
        """Return int64[R], what a pod takes of the asked resources and of the layers."""
        amounts = self.batch.columns.amounts(pod.requests)[self.found.asked]
        if not self.found.constraints:
            return amounts
        uses = self.layers.used_by(self.inputs.snapshot, pod)
        number = self.inputs.snapshot.queues.number_of(pod)
        limited = [limit.used_by(pod, number) for limit in self.inputs.queues.maxima]
        return np.concatenate([amounts, uses, np.array(limited, np.int64)])


def best_candidates(
    ranked: Iterable[CandidateBatch | None], most: int, most_pods: int, unlisted: int = 0
) -> tuple[tuple[PlanCandidate, ...], int]:
    """Rank the nodes of all batches together and write down the best; return how many there were.

    `most` nodes, and no further one once `most_pods` pods have been written down, so that the reply
    stays well below what NATS carries. `unlisted`: how many more there are that rank behind all of these.
    """
    batches = [batch for batch in ranked if batch is not None]
    if not batches:
        return (), unlisted
    scores = joined([batch.scores for batch in batches])
    order = scores.order()
    total = int(order.size) + unlisted
    ends = list(accumulate(batch.places.size for batch in batches))
    candidates: list[PlanCandidate] = []
    pods = 0
    for rank, index in enumerate(order[:most].tolist()):
        if pods >= most_pods:
            break
        decided_by = ONLY_CANDIDATE if total == 1 else ""
        if rank + 1 < order.size:
            decided_by = scores.decided_by(index, int(order[rank + 1]))
        number = bisect_right(ends, index)
        batch = batches[number]
        at = index - ends[number] + batch.places.size
        candidates.append(batch.evaluated.candidate(batch, at, decided_by, explained=rank < EXPLAINED))
        if not rank and (avoided := scores.avoided(index)):
            candidates[0] = replace(candidates[0], lost_work_avoided=avoided)
        pods += len(candidates[-1].removable)
    return tuple(candidates), total
