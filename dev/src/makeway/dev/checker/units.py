"""Rules about units: pods that can only be disrupted together, by the groups that the API server held."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, PodGroup, group_record, membership
from makeway.dev.checker.case import Finding, OrderCase
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.pods import PodHistory

KINDS = {"podgroups": False, "compositepodgroups": True}
"""The resources that are groups, and whether they are composite ones."""

LATELY = timedelta(seconds=2)
"""A pod that was bound so short a time before the first delete may have come after the evictor's look."""


class Groups:
    """Every group over time, from the answers of the API server."""

    def __init__(self, case: OrderCase) -> None:
        self._versions: defaultdict[GroupKey, list[tuple[datetime, GroupRecord | None]]] = defaultdict(list)
        for event in case.history.requests:
            if event.resource not in KINDS or event.subresource or not event.accepted:
                continue
            composite = KINDS[event.resource]
            shown = msgspec.convert(event.response or {}, PodGroup)
            if event.verb in ("delete", "deletecollection") and not shown.metadata.finalizers:
                key = GroupKey(event.namespace, event.name, composite)
                self._versions[key].append((event.answered_at, None))
            elif shown.metadata.name:
                record = group_record(shown, composite=composite)
                gone = record.leaving and not shown.metadata.finalizers
                self._versions[record.key].append((event.answered_at, None if gone else record))

    def at(self, key: GroupKey, moment: datetime) -> GroupRecord | None:
        """Return a group as it was at a moment; None where there was none, or nothing is known of groups."""
        versions = self._versions.get(key, [])
        index = bisect_right(versions, moment, key=lambda version: version[0])
        return versions[index - 1][1] if index else None

    def unit_of(self, pod: PodHistory, moment: datetime) -> GroupKey | None:
        """Return what a pod could only go with at a moment."""
        if not pod.group or not self._versions:
            return None

        return membership(GroupKey(pod.namespace, pod.group), lambda key: self.at(key, moment)).unit

    def priority_of(self, pod: PodHistory, moment: datetime) -> int:
        """Return at which priority a pod counted at a moment: that of its groups where it names one."""
        if not pod.group or not self._versions:
            return pod.priority
        found = membership(GroupKey(pod.namespace, pod.group), lambda key: self.at(key, moment)).priority
        return pod.priority if found is None else found


def rules(case: OrderCase) -> Iterator[Finding]:
    """No pod of a unit is deleted unless all pods of it stand in the same order."""
    groups = Groups(case)
    first: dict[tuple[str, GroupKey], tuple[datetime, OrderHistory]] = {}
    for event, uid, order in case.deletes:
        pod = case.pods.get(uid)
        unit = groups.unit_of(pod, event.at) if pod is not None else None
        if order is not None and unit is not None:
            first.setdefault((order.described, unit), (event.at, order))
    for (described, unit), (moment, order) in first.items():
        named = {victim.uid for victim in order.order.victims} | {one.uid for one in order.order.awaited}
        for pod in case.pods:
            if pod.uid in named or not _stands(pod, moment) or groups.unit_of(pod, moment) != unit:
                continue
            evidence = f"{unit} is evicted whole or not at all, and the order leaves {pod.described} out"
            yield Violation(Invariant.UNIT_BROKEN, (described,), moment, evidence)


def _stands(pod: PodHistory, moment: datetime) -> bool:
    """Whether a pod was bound for a while, and neither leaving nor gone, when the first pod was deleted."""
    leaving = pod.leaving_at
    return pod.bound_by(moment - LATELY) and (leaving is None or leaving > moment) and not _gone(pod, moment)


def _gone(pod: PodHistory, moment: datetime) -> bool:
    return pod.gone_at is not None and pod.gone_at <= moment
