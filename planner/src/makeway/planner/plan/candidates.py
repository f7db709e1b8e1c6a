"""From masks and numbers to named pods: ranked nodes of all blocks, written down for the best few."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

import numpy as np

from makeway.core.policy.rules import LOWER_PRIORITY
from makeway.planner.plan.batch import Block
from makeway.planner.plan.constraint_layers import BatchLayers
from makeway.planner.plan.evaluate import Evaluation, reprieve
from makeway.planner.plan.exempt import exempt_pods_of
from makeway.planner.plan.queue_limits import QueueTerms
from makeway.planner.plan.ranking import ONLY_CANDIDATE, Scores, count_awaited, joined, score
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import AwaitedPod, ExemptPods, Proposal, RemovablePod
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot

EXPLAINED = 3
"""Nodes of which it is written down which pods are exempt there."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Ranked nodes of one block: their scores, their places in it, and who is marked as victim there."""

    part: Part
    scores: Scores
    places: Ints
    victims: Flags
    violating: Flags
    awaited: dict[int, list[PodRecord]]


@dataclass(frozen=True, slots=True)
class Part:
    """A block with what was found on it, and all that turning it into proposals needs."""

    block: Block
    found: Evaluation
    snapshot: Snapshot
    question: Question
    debits: Mapping[tuple[str, str], int]
    now: datetime
    required: BatchLayers
    queues: QueueTerms

    def helped(self) -> Choice | None:
        """Give the nodes where removing pods, or awaiting others' removal, makes room; None without any."""
        places = np.flatnonzero(self.found.helps | self.found.waits)
        if not places.size:
            return None
        victims = self.found.victims[:, places]
        violating = self.found.violating[:, places]
        scores = self._score(places, victims, violating)
        awaited = self._needed(places)
        for at, pods in awaited.items():
            count_awaited(scores, at, pods)
        return Choice(self, scores, places, victims, violating, awaited)

    def unmodelled(self) -> Choice | None:
        """Give the nodes whose columns need nobody gone, ranked as if all removable pods went.

        None where there are none, which is the rule.
        """
        places = np.flatnonzero(self.found.fits & (self.found.removable.any(axis=0) | self.block.awaits))
        return self._all_gone(places) if places.size else None

    def _all_gone(self, places: Ints) -> Choice:
        """Return nodes as if all removable pods went, and all awaited ones, none of them as a victim."""
        removable = self.found.removable[:, places]
        slots = removable.shape[0]
        sets = np.where(removable, self.block.columns.budgets[:slots, self.block.nodes[places]], 0)
        violating = self.snapshot.budgets.violating(sets, self.debits)
        scores = self._score(places, removable, violating)
        awaited = {
            at: self.block.awaited[place]
            for at, place in enumerate(places.tolist())
            if place in self.block.awaited
        }
        return Choice(self, scores, places, np.zeros_like(removable), violating, awaited)

    def sample(self, place: int) -> Proposal | None:
        """Write down a node with all that may be removed there, whatever its columns say; None if nothing."""
        if not self.found.removable[:, place].any():
            return None
        choice = self._all_gone(np.array([place]))
        return self.propose(choice, 0, "", explained=False)

    def propose(self, choice: Choice, at: int, decided_by: str, *, explained: bool) -> Proposal:
        """Write down one node: who may go, in the order of reprieve, and the numbers.

        `explained`: also who of lower priority may not go, and why.
        """
        place = int(choice.places[at])
        scores = choice.scores
        violating, victims = choice.violating[:, at].tolist(), choice.victims[:, at].tolist()
        removable = [
            RemovablePod(pod=pod, rule=LOWER_PRIORITY, victim=victims[slot], pdb_violating=violating[slot])
            for slot, pod in self.block.pods(place, self.found.removable[:, place])
        ]
        removable.sort(key=lambda one: not one.pdb_violating)
        return Proposal(
            node=self.snapshot.names[int(self.block.rows[place])],
            removable=tuple(removable),
            awaited=tuple(
                AwaitedPod(pod, self.question.in_flight[pod.uid]) for pod in choice.awaited.get(at, ())
            ),
            pdb_violations=sum(one.victim and one.pdb_violating for one in removable),
            highest_priority=int(scores.highest[at]),
            priority_sum=int(scores.priority_sum[at]),
            start_micros=int(scores.start[at]),
            decided_by=decided_by,
            exempt=self.exempt(place) if explained else ExemptPods(),
            max_victims=self.snapshot.exemptions.policy.limits.victims_per_order or 0,
        )

    def exempt(self, place: int) -> ExemptPods:
        """Name pods of one node that rules exempt."""
        return exempt_pods_of(
            self.snapshot, self.block, self.found, place, question=self.question, now=self.now
        )

    def _score(self, places: Ints, victims: Flags, violating: Flags) -> Scores:
        names = self.snapshot.name_rank()[self.block.rows[places]]
        return score(
            self.block.columns,
            self.block.nodes[places],
            victims,
            violating,
            name_rank=names,
        )

    def _needed(self, places: Ints) -> dict[int, list[PodRecord]]:
        """Give, by place, the awaited pods without whose removal the preemptor does not fit; others may stay.

        O(awaited pods on these nodes · asked resources and layers).
        """
        waiting = {at: place for at, place in enumerate(places.tolist()) if place in self.block.awaited}
        if not waiting:
            return {}
        found, nodes = self.found, places[list(waiting)]
        left = found.room[:, nodes] + (found.uses[:, :, nodes] * found.victims[:, nodes]).sum(axis=1)
        pods = [self.block.awaited[place] for place in waiting.values()]
        back = np.zeros((left.shape[0], max(map(len, pods)), left.shape[1]), np.int64)
        there = np.zeros(back.shape[1:], np.bool_)
        for at, these in enumerate(pods):
            for turn, pod in enumerate(these):
                there[turn, at] = True
                back[:, turn, at] = self._taken(pod)
        stays = there & ~reprieve(back, left, there, np.zeros_like(there))
        return {
            at: [pod for turn, pod in enumerate(these) if not stays[turn, number]]
            for number, (at, these) in enumerate(zip(waiting, pods, strict=True))
        }

    def _taken(self, pod: PodRecord) -> Ints:
        """Give int64[R], what a pod takes of the asked resources and of the layers."""
        amounts = self.block.columns.amounts(pod.requests)[self.found.asked]
        if not self.found.constraints:
            return amounts
        uses = self.required.used_by(self.snapshot.signature(pod.uid))
        number = self.snapshot.queues.number_of(pod)
        limited = [limit.used_by(pod, number) for limit in self.queues.limits]
        return np.concatenate([amounts, uses, np.array(limited, np.int64)])


def best(
    ranked: Iterable[Choice | None], most: int, most_pods: int, unlisted: int = 0
) -> tuple[tuple[Proposal, ...], int]:
    """Rank the nodes of all blocks together and write down the best; give how many there were.

    `most` nodes, and no further one once `most_pods` pods have been written down, so that the reply
    stays well below what NATS carries. `unlisted`: how many more there are that rank behind all of these.
    """
    choices = [choice for choice in ranked if choice is not None]
    if not choices:
        return (), unlisted
    scores = joined([choice.scores for choice in choices])
    order = scores.order()
    total = int(order.size) + unlisted
    ends = list(accumulate(choice.places.size for choice in choices))
    proposals: list[Proposal] = []
    pods = 0
    for rank, index in enumerate(order[:most].tolist()):
        if pods >= most_pods:
            break
        decided_by = ONLY_CANDIDATE if total == 1 else ""
        if rank + 1 < order.size:
            decided_by = scores.decided_by(index, int(order[rank + 1]))
        number = bisect_right(ends, index)
        choice = choices[number]
        at = index - ends[number] + choice.places.size
        proposals.append(choice.part.propose(choice, at, decided_by, explained=rank < EXPLAINED))
        pods += len(proposals[-1].removable)
    return tuple(proposals), total
