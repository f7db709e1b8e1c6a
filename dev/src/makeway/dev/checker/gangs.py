"""Rules about orders for pod groups: what has to stand before the first of their victims is deleted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from math import ceil
from typing import Final
from urllib.parse import parse_qs, urlsplit

from makeway.bus.messages import Victim
from makeway.core.k8s.pod_groups import GroupKey
from makeway.dev.audit_log import AuditEvent
from makeway.dev.checker.case import Finding, OrderCase
from makeway.dev.checker.deletes import may_reclaim
from makeway.dev.checker.findings import Invariant, Violation
from makeway.dev.checker.nodes import NodeLabels
from makeway.dev.checker.orders import OrderHistory
from makeway.dev.checker.units import Groups

READ_IN_A_SECOND: Final = 500
"""A read of the victims is a second old at most when the first deletion is sent, and of more than so many as
many seconds as there are so many. Its delete then has a second to take its way."""

_ON_NODE: Final = "spec.nodeName="

LOOK = timedelta(seconds=6)
"""An evictor's look at the members is five seconds old at most when an effect begins."""


def rules(case: OrderCase) -> Iterator[Finding]:
    """Before the first delete of a group's order all is read and tried, and enough members wait."""
    first: dict[str, tuple[AuditEvent, OrderHistory]] = {}
    for event, _, order in case.deletes:
        if order is not None and order.order.kind == "group":
            known = first.get(order.described)
            if known is None or event.at < known[0].at:
                first[order.described] = event, order
    if not first:
        return
    groups, looks, nodes = Groups(case), _Looks(case), NodeLabels(case.history.requests)
    for event, order in first.values():
        yield from _barrier(order, event.at, looks)
        yield from _enough(case, order, event.at, groups)
        yield from _apart(case, order, event.at, nodes)
    for event, uid, by in case.deletes:
        if by is not None and by.order.kind == "group":
            yield from _lower(case, by, uid, event.at, groups)


class _Looks:
    """When the evictor read which pod, or those of which node, and when it tried a pod's deletion."""

    def __init__(self, case: OrderCase) -> None:
        self._reads: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
        self._lists: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
        self._trials: defaultdict[tuple[str, str], list[datetime]] = defaultdict(list)
        for event in sorted(case.history.requests, key=lambda event: event.at):
            if event.user != case.accounts.evictor or event.resource != "pods":
                continue
            pod = event.namespace, event.name
            if event.verb == "get":
                self._reads[pod].append(event.at)
            elif event.verb == "list" and (node := _node_of(event.uri)):
                self._lists[event.namespace, node].append(event.at)
            elif event.dry_run and (event.verb == "delete" or event.subresource == "eviction"):
                self._trials[pod].append(event.at)

    def read(self, victim: Victim, since: datetime, until: datetime) -> bool:
        """Whether a victim was read within a time, by itself or with others of its node."""
        return _any(self._reads.get((victim.namespace, victim.name), []), since, until) or _any(
            self._lists.get((victim.namespace, victim.node), []), since, until
        )

    def tried(self, pod: tuple[str, str], since: datetime, until: datetime) -> bool:
        """Whether the deletion of a pod was tried within a time."""
        return _any(self._trials.get(pod, []), since, until)


def _node_of(uri: str) -> str:
    """Return the node whose pods a list is of; empty where it is of others."""
    selector = parse_qs(urlsplit(uri).query).get("fieldSelector", [""])[0]
    return selector.removeprefix(_ON_NODE) if selector.startswith(_ON_NODE) else ""


def _any(times: list[datetime], since: datetime, until: datetime) -> bool:
    return bisect_left(times, since) < bisect_right(times, until)


def _barrier(order: OrderHistory, moment: datetime, looks: _Looks) -> Iterator[Finding]:
    """Of victims that have gone already no deletion is tried, and none of a single one."""
    victims = order.order.victims
    lasts = timedelta(seconds=max(1, ceil(len(victims) / READ_IN_A_SECOND)) + 1)
    for victim in victims:
        if not looks.read(victim, moment - lasts, moment):
            evidence = f"{victim.namespace}/{victim.name} was not read in the {lasts.seconds} s before"
            yield Violation(Invariant.BARRIER_SKIPPED, (order.described,), moment, evidence)
    if len(victims) > 1 and not any(
        looks.tried((victim.namespace, victim.name), order.committed_at, moment) for victim in victims
    ):
        evidence = "no deletion was tried before"
        yield Violation(Invariant.BARRIER_SKIPPED, (order.described,), moment, evidence)


def _apart(case: OrderCase, order: OrderHistory, moment: datetime, nodes: NodeLabels) -> Iterator[Finding]:
    """A victim by itself on no member's node keeps closed the domain that it names; few victims are so.

    Its node and one that a member comes to had the label's value when the evictor looked last.
    """
    comes = {member.node for member in order.order.members}
    apart = [one for one in order.order.victims if not one.unit and one.node not in comes]
    for victim in apart:
        if evidence := _in_no_domain(victim, comes, moment, nodes):
            yield Violation(Invariant.VICTIM_ELSEWHERE, (order.described,), moment, evidence)
    if len(apart) > (most := case.history.in_force.victims_apart):
        evidence = f"{len(apart)} victims are on nodes without members, the policy allows {most}"
        yield Violation(Invariant.CAP_EXCEEDED, (order.described,), moment, evidence)


def _in_no_domain(victim: Victim, comes: set[str], moment: datetime, nodes: NodeLabels) -> str:
    """Return why a victim keeps no member's domain closed; empty where it does, or no node is known."""
    closes = victim.closes
    if closes is None:
        return f"no member comes to {victim.node}, and {victim.namespace}/{victim.name} closes no domain"
    if not nodes.known:
        return ""
    domain = f"{closes.key}={closes.value}"
    if closes.value not in nodes.values(victim.node, closes.key, moment - LOOK, moment):
        return f"{victim.node}, where {victim.namespace}/{victim.name} is, does not have {domain}"
    if not any(closes.value in nodes.values(node, closes.key, moment - LOOK, moment) for node in comes):
        return f"no member comes to {domain}, which {victim.namespace}/{victim.name} keeps closed"
    return ""


def _enough(case: OrderCase, order: OrderHistory, moment: datetime, groups: Groups) -> Iterator[Finding]:
    """By the members' nominations and bindings, and the group's minCount, as the API server showed them."""
    group = order.order.group
    if group is None:
        return
    record = groups.at(GroupKey(group.namespace, group.name), moment)
    wanted = max(1, group.min_count if record is None else record.min_count)
    # What was seen to be so within a look's time may have changed since.
    found = max(_standing(case, order, then) for then in (moment, *_within_a_look(case, order, moment)))
    if found < wanted:
        evidence = f"{found} members wait for their nodes or run, minCount is {wanted}"
        yield Violation(Invariant.GANG_SHORT, (order.described,), moment, evidence)


def _within_a_look(case: OrderCase, order: OrderHistory, moment: datetime) -> Iterator[datetime]:
    """Yield the moments from a look's time before to now at which pods of the group changed. O(pods)."""
    group, begin = order.order.group, moment - LOOK
    assert group is not None  # noqa: S101 - the caller has looked
    yield begin
    for pod in case.pods:
        if (pod.namespace, pod.group) == (group.namespace, group.name):
            yield from (version.since for version in pod.versions if begin < version.since < moment)


def _standing(case: OrderCase, order: OrderHistory, moment: datetime) -> int:
    """How many pods of the group wait for the node that the order says, or are bound."""
    group = order.order.group
    assert group is not None  # noqa: S101 - the caller has looked
    nominations = order.nominations
    count = 0
    for pod in case.pods:
        shown = pod.at(moment)
        if (pod.namespace, pod.group) != (group.namespace, group.name) or shown is None:
            continue
        waits = shown.nominated != "" and shown.nominated == nominations.get(pod.uid)
        count += not shown.leaving and not shown.gone and (waits or pod.bound_by(moment))
    return count


def _lower(
    case: OrderCase, order: OrderHistory, uid: str, moment: datetime, groups: Groups
) -> Iterator[Finding]:
    """The victim against the group, at the priority of its own groups."""
    group, victim = order.order.group, case.pods.get(uid)
    if group is None or victim is None:
        return
    record = groups.at(GroupKey(group.namespace, group.name), moment)
    preemptor = group.priority if record is None else record.priority
    rule = next((one.rule for one in order.order.victims if one.uid == uid), "")
    equal = may_reclaim(case, victim, rule)
    if (priority := groups.priority_of(victim, moment)) > preemptor or (priority == preemptor and not equal):
        objects = (victim.described, order.described)
        evidence = f"deleted at {moment.isoformat()} with priority {priority} for {preemptor}"
        yield Violation(Invariant.VICTIM_NOT_LOWER, objects, moment, evidence)
