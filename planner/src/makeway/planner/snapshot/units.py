"""The one reader of what a pod's eviction costs: bound pods of the snapshot as units of core.

Owned by the snapshot. Columns carry the same facts for plans over all nodes: the priority that `PodGroups`
has entered a pod at, its exemption, its set of budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from makeway.core.policy.facts import opts_out
from makeway.core.queues.quota_exemption import kept_from_quotas, quota_exemption_of
from makeway.core.queues.tree import QueueTree
from makeway.core.unit import COMPOSITE_RANK, GROUP_RANK, NO_QUEUE, POD_RANK, Unit, whole
from makeway.planner.snapshot.budgets import NO_BUDGETS
from makeway.planner.snapshot.daemonsets import DaemonSetIndex
from makeway.planner.snapshot.exemptions import Exemptions
from makeway.planner.snapshot.owner_index import OwnerIndex
from makeway.planner.snapshot.pod_groups import POD_GROUP, GroupMembers, PodGroups, WholeGroup
from makeway.planner.snapshot.records import PodRecord

MOST_PODS: Final = 1000
"""Pods of a unit that an order may name: some 300 kB of JSON, of the 1 MiB that NATS carries."""


@dataclass(eq=False)
class UnitReader:
    """Returns units. `budget_set`: the number of a pod's set of budgets, by its UID."""

    exemptions: Exemptions
    owners: OwnerIndex
    daemonsets: DaemonSetIndex
    groups: PodGroups
    _: KW_ONLY
    budget_set: Callable[[str], int]

    def __post_init__(self) -> None:
        self.queue_of: Callable[[str], int] = lambda _: NO_QUEUE
        """The number of the queue that a pod counts in, by its UID; those who keep the queues set it."""
        self._known: dict[int, tuple[WholeGroup, int, QueueTree | None, Unit]] = {}

    def of(self, pod: PodRecord) -> Unit:
        """Return a bound pod by itself; `kept` where its group does not let it go so. O(1)."""
        group = self.groups.of(pod)
        return self._single(pod, "" if group is None else _kept(group))

    def of_group(self, group: WholeGroup, pods: Sequence[PodRecord], *, kept: str = "") -> Unit:
        """Return pods of a group that goes whole as one unit. O(pods).

        `kept`: what the caller knows to keep them beside their own rules.
        """
        kept = kept or self.kept_whole(group, len(pods))
        return whole(
            str(group.key),
            [self._single(pod, "") for pod in pods],
            rank=COMPOSITE_RANK if group.key.composite else GROUP_RANK,
            exempt=POD_GROUP if kept else "",
            kept=kept,
        )

    def all_of(self, group: WholeGroup, pods: Sequence[PodRecord], tree: QueueTree | None) -> Unit:
        """Return all pods of a group that goes whole as one unit. O(1) while none of them changes.

        `pods`: its members; `tree`: the queues in force. Of originators it may tell what was so before.
        """
        known = self._known.get(group.number)
        if known is not None and known[:2] == (group, group.version) and known[2] is tree:
            return known[3]
        unit = self.of_group(group, pods)
        self._known[group.number] = group, group.version, tree, unit
        return unit

    def kept_whole(self, group: WholeGroup, pods: int) -> str:
        """Return why a group keeps all of its pods; empty where they may go together. O(its groups)."""
        if pods > MOST_PODS:
            return f"{_whole(group)}, and its {pods} pods are more than an order may name ({MOST_PODS})"
        if any(one.unknown or one.applying for one in group.groups.values()):
            return f"{_whole(group)}, and its groups are being applied"
        return ""

    def surplus(self, gang: str) -> int:
        """Return how many pods of a gang, as `Unit.gang` names it, may go without breaking it."""
        return self.groups.surplus_of(gang) if self.exemptions.policy.groups.surplus_first else 0

    def _single(self, pod: PodRecord, kept: str) -> Unit:
        facts, exemptions = self.daemonsets.facts_of(pod), self.exemptions
        priority_class = exemptions.classes.get(facts.priority_class)
        exemption = quota_exemption_of(facts, exemptions.policy.protection)
        if exemption is None and exemptions.table:
            exemption = kept_from_quotas(exemptions.table, exemptions.party_of(pod))
        exempt = "" if exemption is None else exemption.rule
        held = self.budget_set(pod.uid)
        group = self.groups.of(pod)
        return Unit(
            uid=pod.uid,
            requests=pod.requests,
            priority=facts.priority,
            rank=POD_RANK if group is None else GROUP_RANK,
            created_micros=facts.created_micros,
            originator=self.owners.is_originator(pod),
            owner=self.owners.has_dependents(pod),
            opted_out=facts.opted_out or (priority_class is not None and opts_out(priority_class.metadata)),
            exempt=exempt or (POD_GROUP if kept else ""),
            kept=kept,
            gang="" if group is None or not group.min_count or group.unit is not None else str(group.key),
            budgets=() if held == NO_BUDGETS else (held,),
            terminating=int(pod.terminating),
            queue=self.queue_of(pod.uid),
        )


def _kept(group: GroupMembers) -> str:
    """Return why a pod of a group may not go by itself; empty where it may."""
    if group.unit is not None:
        return _whole(group.unit)
    if group.unknown:
        return f"the pods to be evicted with it are not known: {group.unknown}"
    return "the priority of its group is being applied" if group.applying else ""


def _whole(group: WholeGroup) -> str:
    return f"{group.key} is evicted whole or not at all"
