"""What an order for a pod group stands on: the group, and the members that wait for their nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from math import ceil
from typing import Final

from makeway.bus.messages import EvictionOrder, Placement, Victim
from makeway.core.k8s.affinity import anti_affinity_terms
from makeway.core.k8s.objects import ENDED_PHASES, Node, Pod
from makeway.core.k8s.pod_groups import GroupRecord, group_of
from makeway.core.k8s.selector import SelectorError
from makeway.core.policy import external
from makeway.evictor.judge.groups import first_of_units
from makeway.evictor.judge.verdicts import Cancelled, Exempt, Refused

READ_IN_A_SECOND: Final = 500
"""So many pods an evictor reads within a second, with a busy API server as well."""

_NAMED = 3
"""How many members that do not wait any more are named."""


def reads_last(pods: int) -> timedelta:
    """Return how old a read of so many pods may be when an effect rests on it.

    A second, and with more than `READ_IN_A_SECOND` one for each so many: a bound below the time that the read
    takes would keep a large group waiting for good.
    """
    return timedelta(seconds=max(1, ceil(pods / READ_IN_A_SECOND)))


def incomplete(order: EvictionOrder) -> str:
    """Return why an order of kind group is none by itself; empty where it is one."""
    group, members = order.group, order.members
    if group is None or not members or order.preemptor is not None or order.node:
        return "a group order needs group and members, and has neither preemptor nor node"
    if not 1 <= group.must_place <= len(members):
        return f"mustPlace is {group.must_place}, of {len(members)} members"
    if any(member.namespace != group.namespace for member in members):
        return f"a group order has members of its group's namespace {group.namespace} alone"
    uids = {member.uid for member in members}
    if len(uids) != len(members):
        return "a group order names each member once"
    if any(victim.uid in uids for victim in order.victims):
        return "a group order names a member as a victim"
    if any(victim.closes is not None and victim.unit for victim in order.victims):
        return "a victim for a closed domain is evicted by itself, and not with a unit"
    return ""


def nodes_named(order: EvictionOrder) -> list[str]:
    """Return the nodes that a group's order is judged by: of members, and of victims for closed domains."""
    beside = {victim.node for victim in order.victims if victim.closes is not None}
    return sorted({member.node for member in order.members} | beside)


def unwanted(
    order: EvictionOrder,
    record: GroupRecord | None,
    members: Mapping[str, Pod | None],
    nodes: Mapping[str, Node | None],
) -> Cancelled | Refused | None:
    """Return why a group's order is not carried out, by what the API server has now; None where it may be.

    `members`: by UID, the pod under each member's name. `nodes`: by name. Enough members must wait, and where
    a victim is to go by itself one must wait for its node, or for one of the domain that it keeps closed:
    else it would go for none. O(members + victims · keys of closed domains).
    """
    group = order.group
    if group is None or record is None or record.uid != group.uid or record.leaving:
        return Cancelled("group-gone", "the PodGroup does not exist any more or is being deleted")
    if record.min_count != group.min_count:
        message = f"the PodGroup's minCount is {record.min_count}, the order is for {group.min_count}"
        return Cancelled("group-changed", message)
    not_waiting = {
        member.uid: reason
        for member in order.members
        if (reason := _not_waiting(member, members.get(member.uid), nodes.get(member.node), group.name))
    }
    waiting = [member for member in order.members if member.uid not in not_waiting]
    if len(waiting) < group.must_place:
        return Cancelled(
            "members-missing",
            f"{len(waiting)} of {len(order.members)} members wait for their nodes, {group.must_place} must: "
            + "; ".join(list(not_waiting.values())[:_NAMED]),
        )
    awaited = {member.node for member in waiting}
    keys = {victim.closes.key for victim in order.victims if victim.closes is not None}
    domains = _labelled((nodes.get(name) for name in awaited), keys)
    for victim in order.victims:
        if victim.unit or victim.node in awaited:
            continue
        if victim.closes is None:
            return Cancelled("members-missing", f"no member waits for node {victim.node} any more")
        closed = victim.closes.key, victim.closes.value
        if closed not in domains & _labelled([nodes.get(victim.node)], [closed[0]]):
            left = f"node {victim.node} is not in {'='.join(closed)} any more"
            message = f"{left}, or no member waits for a node there"
            return Cancelled("members-missing", message)
    policies = {pod.spec.preemption_policy for one in waiting if (pod := members.get(one.uid)) is not None}
    if not record.lets_preempt(external.NEVER not in policies):
        return Refused("preemption-policy-never", "the group's preemptionPolicy is Never")
    return None


def closes_nothing(
    victim: Victim,
    pod: Pod,
    order: EvictionOrder,
    members: Mapping[str, Pod | None],
    nodes: Mapping[str, Node | None],
) -> Exempt | None:
    """Return that a victim stays, since its pod does not keep its domain closed any more; None where it does.

    It has to keep away a member that is nominated to a node there, by the required anti-affinity that the
    domain names, as InterPodAffinity has it. `members`, `nodes`: as of `unwanted`. An evictor reads no labels
    of namespaces: a term with a namespaceSelector counts for any. None for a victim without a domain.
    O(members · terms).
    """
    if (closes := victim.closes) is None:
        return None
    domain = {(closes.key, closes.value)}

    def is_there(node: str) -> bool:
        return _labelled([nodes.get(node)], [closes.key]) == domain

    there = (members.get(one.uid) for one in order.members if is_there(one.node))
    waiting = [one for one in there if one is not None and is_there(one.status.nominated_node_name or "")]
    pairs = ((one, pod) if closes.rule == "podAntiAffinity" else (pod, one) for one in waiting)
    if is_there(victim.node) and any(_keeps_away(*pair, closes.key) for pair in pairs):
        return None
    message = f"it does not keep {closes.key}={closes.value} closed to the group any more"
    return Exempt("closes-nothing", message)


def _keeps_away(pod: Pod, other: Pod, key: str) -> bool:
    """Report whether a pod's required anti-affinity by a label keeps it away from another pod."""
    try:
        terms = anti_affinity_terms(pod)
    except SelectorError:
        return False
    space, labels = other.metadata.namespace, other.metadata.labels or {}
    return any(
        term.selector is not None
        and term.selector.matches(labels)
        and (space in term.namespaces or term.namespace_selector is not None)
        for term in terms
        if term.topology_key == key
    )


def _labelled(nodes: Iterable[Node | None], keys: Iterable[str]) -> set[tuple[str, str]]:
    """Return the values that nodes have of labels, with their keys. O(nodes · keys)."""
    labels = [node.metadata.labels or {} for node in nodes if node is not None]
    return {(key, of_node[key]) for key in keys for of_node in labels if key in of_node}


def _not_waiting(member: Placement, pod: Pod | None, node: Node | None, group: str) -> str:
    """Return why a member does not wait for its node; empty where it does."""
    name = f"{member.namespace}/{member.name}"
    if pod is None or pod.metadata.uid != member.uid:
        return f"{name} does not exist any more"
    if group_of(pod) != group:
        return f"{name} is no pod of the group"
    if pod.metadata.deletion_timestamp is not None:
        return f"{name} is being deleted"
    if pod.spec.node_name:
        return f"{name} is bound to {pod.spec.node_name}"
    if pod.status.phase in ENDED_PHASES:
        return f"{name} has ended"
    nominated = pod.status.nominated_node_name
    if nominated != member.node:
        return f"{name} is nominated to {nominated or 'no node'}, the order is for {member.node}"
    if (
        node is None
        or (member.node_uid and node.metadata.uid != member.node_uid)
        or node.metadata.deletion_timestamp is not None
    ):
        return f"{name} waits for node {member.node}, which does not exist any more"
    return ""


def in_phases(victims: Sequence[Victim]) -> Iterator[tuple[bool, list[Victim]]]:
    """Yield the victims in the order in which they go: one of each unit, the rest of units, and so on.

    All single pods but the last of each node follow, then these.

    The flag says of a phase that others go before it, so that all is re-checked before each of its deletions.
    """
    first = {victim.uid for victim in first_of_units(victims).values()}
    leading = [victim for victim in victims if victim.uid in first]
    whole = [victim for victim in victims if victim.unit and victim.uid not in first]
    by_node = sorted((victim for victim in victims if not victim.unit), key=lambda victim: victim.node)
    nodes = [list(found) for _, found in groupby(by_node, key=lambda victim: victim.node)]
    last = [found[-1] for found in nodes]
    others = [victim for found in nodes for victim in found[:-1]]
    phases = [phase for phase in (leading, whole, others, last) if phase]
    for phase in phases:
        yield phase is last and len(phases) > 1, phase
