"""Who may preempt whom, as one preemptor meets the policy's rules: over all pods of a batch at once.

The columns hold of each pod which rules' `victims` it matches, a bit each. The lowest that pod and preemptor
both have is the rule that decides. What it keeps is put into the batch as an exemption, so that whatever
reads exemptions there heeds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.policy.exemption import FOREVER, Exemption
from makeway.core.policy.preemption import KEPT_BELOW, Party, Table, exemption_by, preemptor_bits
from makeway.core.policy.rules import PreemptorFacts
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.columns import Ints
from makeway.planner.snapshot.exemptions import Exemptions
from makeway.planner.snapshot.node_slots import NodeSlots
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot


@dataclass(frozen=True, slots=True)
class WhoPreempts:
    """The table for one preemptor, at one moment.

    `masks`: which rules are about the preemptor, or about each member of a group, each answer once; without
    rules there is none.
    """

    exemptions: Exemptions
    masks: tuple[int, ...]
    priority: int
    now_micros: int

    @property
    def key(self) -> tuple[int, tuple[int, ...]] | None:
        """What preemptors have in common that the table treats alike; None without rules."""
        return (self.exemptions.table_version, self.masks) if self.masks else None

    def exempt(self, columns: NodeSlots) -> None:
        """Put what the table keeps into the exemptions of a batch. O(slots · nodes · rules with a time)."""
        table = self.exemptions.table
        if not any(self.masks):
            return
        bits, start = columns.rule_bits, columns.start
        until = np.zeros(bits.shape, np.int64)
        for mask in self.masks:
            both = bits & mask
            np.maximum(until, _until(table, mask, both & -both, start), out=until)
        columns.exempt(until, KEPT_BELOW, preemptor_priority=self.priority, now_micros=self.now_micros)

    def exemption_of(self, pod: PodRecord) -> Exemption:
        """Return what exempts one pod: its own side first, then the table. O(members + rules)."""
        found = self.exemptions.exemption_of(pod)
        if not any(self.masks) or found.applies(self.priority, self.now_micros):
            return found
        bits = self.exemptions.rule_bits(pod)
        kept = exemption_by(self.exemptions.table, self.masks, bits, pod.start_micros)
        return kept if kept.applies(self.priority, self.now_micros) else found


def _until(table: Table, mask: int, first: Ints, start: Ints) -> Ints:
    """Return until when pods stay by the rule that decides, given by its bit; 0 where no rule keeps them."""
    until = np.zeros(first.shape, np.int64)
    denying = 0
    for number, rule in enumerate(table):
        bit = 1 << number
        if not mask & bit:
            continue
        if rule.action == "deny":
            denying |= bit
        elif rule.minimum_run_time:
            at = first == bit
            least = rule.keeps_until(0)
            until[at] = np.where(start[at] < NOT_STARTED - least, start[at] + least, FOREVER)
    until[(first & denying) != 0] = FOREVER
    return until


def who_preempts(
    snapshot: Snapshot,
    question: Question,
    now_micros: int,
    *,
    members: Sequence[PodRecord] = (),
    group: GroupKey | None = None,
) -> WhoPreempts:
    """Return the table as a pod meets it, or the members of a group, with its labels. O(members · rules)."""
    exemptions, parties = snapshot.exemptions, list[Party]()
    if exemptions.table:
        parties = [exemptions.party_of(pod) for pod in members or (question.preemptor,)]
        if group is not None:
            record = snapshot.groups.find(group)
            parties = [one._replace(labels={} if record is None else record.labels) for one in parties]
    masks = sorted({preemptor_bits(exemptions.table, one) for one in parties})
    return WhoPreempts(exemptions, tuple(masks), question.preemptor.priority, now_micros)


def preemptor_facts(snapshot: Snapshot, question: Question, daemonset_node: str = "") -> PreemptorFacts:
    """Return what rules know of the pod that preempts."""
    pod, exemptions = question.preemptor, snapshot.exemptions
    parties = (exemptions.party_of(pod),) if exemptions.table else ()
    return PreemptorFacts(pod.priority, pod.namespace, daemonset_node, parties)
