"""Who may preempt whom, as one preemptor meets the policy's rules: over all pods of a batch at once.

The columns hold of each pod which rules' `victims` it matches, a bit each. The lowest that pod and preemptor
both have is the rule that decides. What it keeps is put into the batch as an exemption, so that whatever
reads exemptions there heeds it. Besides pods of lower priority those are removable that the preemptor's
queue reclaims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.policy.exemption import FOREVER, Exemption
from makeway.core.policy.preemption import (
    KEPT_BELOW,
    Party,
    PreemptionRule,
    Table,
    deciding,
    exemption_by,
    preemptor_bits,
)
from makeway.core.policy.rules import PreemptorFacts, Verdict, of_table
from makeway.core.queues.amounts import Amounts
from makeway.core.queues.queue_exempt import is_queue_exempt
from makeway.core.queues.reclaim import Reclaim, reclaims
from makeway.core.queues.tree import Queue, QueueTree
from makeway.planner.plan.constraints.tally import Weights
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.columns import NOT_RECLAIMED, START, Flags, Ints
from makeway.planner.snapshot.exemptions import Exemptions
from makeway.planner.snapshot.node_slots import Kept, NodeSlots
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot


@dataclass(frozen=True, slots=True)
class Claim:
    """What a pod, or all members of a group together, ask of their queue.

    `held`: what is used of a queue by its number. Where reclaim is on pods that are being deleted count no
    longer, and those that are on their way to a node, and other nominated ones, do already.
    """

    tree: QueueTree
    queue: Queue
    asked: Amounts
    held: Callable[[int], Amounts]


@dataclass(frozen=True, slots=True)
class WhoPreempts:
    """The table for one preemptor, at one moment.

    `masks`: which rules are about the preemptor, or about each member of a group, each answer once; without
    rules there is none. `claim`: on its queue; None without queues, and for members of several. `reclaim`:
    what that queue may take back, by the queues of `revision`.
    """

    exemptions: Exemptions
    masks: tuple[int, ...]
    priority: int
    now_micros: int
    claim: Claim | None = None
    reclaim: Reclaim | None = None
    revision: str = ""

    @property
    def key(self) -> Hashable:
        """What preemptors have in common that are treated alike; without rules and reclaim all are."""
        rules = (self.exemptions.table_version, self.masks) if self.masks else None
        back = self.reclaim
        return rules, back and (self.revision, back.queue.number, back.resources, back.lenders)

    def reaches(self, pod: PodRecord) -> bool:
        """Report whether a pod is lower than the preemptor, or its room may be reclaimed. O(resources)."""
        return pod.priority < self.priority or bool(self.reclaimed(pod))

    def reclaimed(self, pod: PodRecord) -> str:
        """Return what the preemptor's queue takes back with a pod; empty where nothing. O(resources)."""
        if self.reclaim is None or is_queue_exempt(
            pod.namespace, pod.priority, self.exemptions.queue_exempt_namespaces
        ):
            return ""
        path, goes = self.exemptions.path_of(pod), self.exemptions.facts_of(pod).is_reclaimable
        return self.reclaim.with_pod(path, pod.priority, pod.requests) if goes else ""

    def reclaimable(self, snapshot: Snapshot, columns: NodeSlots, labelled: Weights | None) -> Flags | None:
        """Return bool[slots, M], what `reclaimed` says of each pod; None where nothing is reclaimed.

        `labelled`: the numbers plus 1 of the queues that labels name now. O(slots · nodes + signatures).
        """
        back = self.reclaim
        if back is None or labelled is None:
            return None
        found: Flags = columns.priority == back.priority
        if not found.any():
            return None
        numbers = labelled.as_known(np.arange(snapshot.signatures.size)) - 1
        lends = np.array([*back.lenders, False])[numbers]
        lends &= ~snapshot.signatures.of_namespaces(self.exemptions.queue_exempt_namespaces)
        found &= lends.take(columns.signature)
        found &= columns.rule_bits < NOT_RECLAIMED
        layers = [columns.resources[name] for name in back.resources if name in columns.resources]
        holds = [columns.request(layer) > 0 for layer in layers]
        return found & np.logical_or.reduce(holds) if holds else None

    def exempt(self, columns: NodeSlots) -> None:
        """Put what the table keeps into the exemptions of a batch. O(slots · nodes · rules with a time)."""
        table = self.exemptions.table
        asked = (_kept(table, mask, columns) for mask in self.masks if mask)
        if found := [one for one in asked if one is not None]:
            kept = reduce(Kept.together, found)
            columns.exempt(kept, KEPT_BELOW, preemptor_priority=self.priority, now_micros=self.now_micros)

    def verdict(self, rule_bits: int, start_micros: int) -> Verdict:
        """Return what the table says of one pod, in words. O(masks)."""
        found = deciding(self.exemptions.table, self.masks, rule_bits)
        return of_table(found, start_micros, self.now_micros)

    def exemption_of(self, pod: PodRecord) -> Exemption:
        """Return what exempts one pod: its own side first, then the table. O(members + rules)."""
        found = self.exemptions.exemption_of(pod)
        if not any(self.masks) or found.applies(self.priority, self.now_micros):
            return found
        bits = self.exemptions.rule_bits(pod)
        kept = exemption_by(self.exemptions.table, self.masks, bits, pod.start_micros)
        return kept if kept.applies(self.priority, self.now_micros) else found


def _kept(table: Table, mask: int, columns: NodeSlots) -> Kept | None:
    """Return which pods stay by the rule that decides, and until when; None where none is meant.

    `mask`: the rules that are about the preemptor, a bit each, in a number as narrow as holds them all.
    """
    narrow = np.min_scalar_type(mask)
    both = columns.rule_bits.astype(narrow)
    both &= narrow.type(mask)
    if not both.any():
        return None
    asked = [(1 << number, rule) for number, rule in enumerate(table) if mask >> number & 1]
    denying = sum(bit for bit, rule in asked if rule.action == "deny")
    if mask == denying:  # which of them decides is no matter
        return Kept(both != 0)
    first = both & -both
    timed = []
    for bit, rule in asked:
        if rule.action == "allow" and rule.minimum_run_time:
            at = np.flatnonzero(first == bit)
            timed.append((at, _ends(rule, columns.of_places(START, at))))
    return Kept((first & denying) != 0, tuple(timed))


def _ends(rule: PreemptionRule, start: Ints) -> Ints:
    """Return the last microsecond for which each victim stays that has started then."""
    least = rule.keeps_until(0)
    return np.where(start < NOT_STARTED - least, start + least, FOREVER)


def who_preempts(
    snapshot: Snapshot,
    question: Question,
    now_micros: int,
    *,
    members: Sequence[PodRecord] = (),
    counts: Sequence[int] = (),
    group: GroupKey | None = None,
) -> WhoPreempts:
    """Return the table as a pod meets it, or the members of a group, with its labels. O(members · rules).

    `counts`: how many members are as each of `members`, where that is not one. Where reclaim is on it costs
    O(queues + pods on their way to nodes) as well.
    """
    exemptions, parties = snapshot.exemptions, list[Party]()
    if exemptions.table:
        parties = [exemptions.party_of(pod) for pod in members or (question.preemptor,)]
        if group is not None:
            record = snapshot.groups.find(group)
            parties = [one._replace(labels={} if record is None else record.labels) for one in parties]
    masks = sorted({preemptor_bits(exemptions.table, one) for one in parties})
    asking = members or (question.preemptor,)
    priority, revision = question.preemptor.priority, snapshot.queues.revision
    claim, back = _claim(snapshot, question, [*zip(asking, counts or [1] * len(asking), strict=True)]), None
    if claim is not None:
        back = next(reclaims(claim.tree, claim.queue.number, claim.asked, priority, claim.held), None)
    return WhoPreempts(exemptions, tuple(masks), priority, now_micros, claim, back, revision)


def _claim(snapshot: Snapshot, question: Question, asking: Sequence[tuple[PodRecord, int]]) -> Claim | None:
    """Return what some pods ask of their queue; `asking`: how many are as each. O(pods · resources)."""
    queues = snapshot.queues
    tree, staying = queues.tree, queues.staying
    leaves = {queues.number_of(pod) for pod, _ in asking}
    if tree is None or staying is None or queues.held is None or len(leaves) > 1:
        return None
    queue = tree.queues[leaves.pop()]
    asked = Counter[str]()
    for one, count in asking:
        asked.update({name: amount * count for name, amount in one.requests.items()})
    if not tree.reclaim:
        return Claim(tree, queue, asked, queues.held.of)
    named = {one.uid for one in (*question.assumed, *question.nominations)} - {pod.uid for pod, _ in asking}
    pods = [pod for uid in named if (pod := snapshot.pods.get(uid)) is not None and not pod.node]
    coming = [(queues.number_of(pod), pod.requests) for pod in pods]

    def held(number: int) -> Amounts:
        found = Counter(staying.of(number))
        for leaf, requests in coming:
            if number <= leaf < tree.queues[number].below:
                found.update(requests)
        return found

    return Claim(tree, queue, asked, held)


def preemptor_facts(snapshot: Snapshot, question: Question, daemonset_node: str = "") -> PreemptorFacts:
    """Return what rules know of the pod that preempts."""
    pod, exemptions = question.preemptor, snapshot.exemptions
    parties = (exemptions.party_of(pod),) if exemptions.table else ()
    return PreemptorFacts(pod.priority, pod.namespace, daemonset_node, parties)
