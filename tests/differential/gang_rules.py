"""Which rule a plan for a gang breaks, and what it costs, looked at pod by pod when all of it is done.

It knows nothing of the planner's code but how sums of priorities are made. Rules are looked at as they hold
in the end: of those that are drawn each can be kept on the way by some order if it is kept then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from differential.gang_case import HOST, OWN_QUEUE, PRIORITY, RESOURCES, Case, Members, Running

SHIFT = 2**31
NOTHING = -(2**40)

Terms = tuple[int, int, int, int, int, int]
"""Budgets violated, highest priority, groups broken, victims of that priority, sum of priorities, victims."""

Places = Mapping[tuple[int, int], int]
"""How many members, by class and node."""


def terms_of(case: Case, gone: Sequence[Running]) -> Terms:
    """Return the price of victims."""
    taken = Counter(pod.budget for pod in gone if pod.budget)
    lost = Counter(pod.group for pod in gone if pod.group)
    bound = Counter(pod.group for pod in case.pods)
    highest = max((pod.priority for pod in gone), default=NOTHING)
    broken = sum(
        group in case.units or bound[group] >= case.gangs[group] > bound[group] - count
        for group, count in lost.items()
    )
    return (
        sum(max(0, count - case.budgets[name]) for name, count in taken.items()),
        highest,
        broken,
        sum(pod.priority == highest for pod in gone),
        sum(pod.priority + SHIFT for pod in gone),
        len(gone),
    )


def broken_rule(case: Case, placed: Places, victims: set[str]) -> str:
    """Return which rule a plan breaks; empty where it breaks none. `victims`: UIDs."""
    return next(_broken(case, placed, victims), "")


def _broken(case: Case, placed: Places, victims: set[str]) -> Iterator[str]:
    gone = [pod for pod in case.pods if pod.uid in victims]
    left = [pod for pod in case.pods if pod.uid not in victims]
    used = {node for (_, node), count in placed.items() if count}
    together = used if case.placed is None else used | {case.placed}
    if len(gone) != len(victims):
        yield "a victim that is not there"
    if sum(placed.values()) < case.must:
        yield "fewer members than must be placed"
    if any(pod.priority >= PRIORITY for pod in gone):
        yield "a victim that is not of lower priority"
    if len(gone) > case.most_victims:
        yield "more victims than an order may have"
    whole = {pod.group for pod in gone if pod.group in case.units}
    if any(pod.group in whole for pod in left):
        yield "a unit that does not go whole"
    for pod in gone:
        beside = pod.node in used or pod.group in whole
        if not beside and not (case.elsewhere and _keeps_out(case, placed, pod)):
            yield f"victim {pod.uid} on a node without members"
    if case.domain and len({case.place(case.domain, node) or f"none of {node}" for node in together}) > 1:
        yield "members in two domains"
    if case.domain and any(not case.place(case.domain, node) for node in used):
        yield "a member in no domain"
    for cls, one in enumerate(case.classes):
        if sum(count for (number, _), count in placed.items() if number == cls) > one.count:
            yield "more members than wait"
        if (
            one.nodes
            and not {node for (number, node), n in placed.items() if number == cls and n} <= one.nodes
        ):
            yield "a member on a node that it cannot use"
        yield from _of_class(case, placed, left, cls, one)
    yield from _of_nodes(case, placed, left, used)
    yield from _of_queues(case, placed, gone)


def _keeps_out(case: Case, placed: Places, pod: Running) -> bool:
    """Report whether a pod keeps members out of a domain that has one, by a rule over several nodes."""
    for (cls, node), count in placed.items():
        one = case.classes[cls]
        keys = [pod.forbids, one.avoids if pod.role == "blocker" else ""]
        keys.append(one.apart if pod.role == "mate" and (cls == 0 or one.apart_from_all) else "")
        if count and any(key and case.place(key, node) == case.place(key, pod.node) != "" for key in keys):
            return True
    return False


def _of_class(case: Case, placed: Places, left: Sequence[Running], cls: int, one: Members) -> Iterator[str]:
    mine = {node: count for (number, node), count in placed.items() if number == cls and count}
    everyone = Counter[int]()
    for (_, node), count in placed.items():
        everyone[node] += count
    mates = [pod for pod in left if pod.role == "mate" and cls == 0]
    all_mates = [pod for pod in left if pod.role == "mate"]
    for node in mine:
        if one.apart:
            here = _members_in(case, one.apart, node, everyone if one.apart_from_all else mine)
            others = all_mates if one.apart_from_all else mates
            if here > 1 or _pods_in(case, one.apart, node, others):
                yield "members too near to one another"
        if one.avoids and _pods_in(case, one.avoids, node, [pod for pod in left if pod.role == "blocker"]):
            yield "a member beside a pod that it avoids"
        if one.near and not _pods_in(case, one.near, node, [pod for pod in left if pod.role == "friend"]):
            yield "a member that is far from what it needs"
        if any(_pods_in(case, pod.forbids, node, [pod]) for pod in left if pod.forbids):
            yield "a member beside a pod that forbids it"
    if one.together and mine:
        where = {case.place(one.together, node) for node in mine}
        there = {case.place(one.together, pod.node) for pod in mates} - {""}
        if "" in where or (not where <= there if there else len(where) > 1):
            yield "members too far from one another"
    if one.spread is not None and mine:
        counted = everyone if one.spread.all_classes else mine
        pods = all_mates if one.spread.all_classes else mates
        key = one.spread.key
        if any(not case.place(key, node) for node in mine):
            yield "a member in no domain of its spread"
            return
        totals = {
            name: sum(counted.get(node, 0) + sum(pod.node == node for pod in pods) for node in nodes)
            for name, nodes in case.domains(key).items()
        }
        most = min(totals.values()) + one.spread.skew
        if any(totals[case.place(key, node)] > most for node in mine):
            yield "members not spread evenly"


def _members_in(case: Case, key: str, node: int, counts: Mapping[int, int]) -> int:
    """Return how many members are in a node's domain; none where it has no such label."""
    domain = case.place(key, node)
    return sum(count for other, count in counts.items() if domain and case.place(key, other) == domain)


def _pods_in(case: Case, key: str, node: int, pods: Sequence[Running]) -> bool:
    domain = case.place(key, node)
    return bool(domain) and any(case.place(key, pod.node) == domain for pod in pods)


def _of_nodes(case: Case, placed: Places, left: Sequence[Running], used: set[int]) -> Iterator[str]:
    for node in sorted(used):
        here = [pod for pod in left if pod.node == node]
        members = [(case.classes[cls], count) for (cls, at), count in placed.items() if at == node]
        for number, name in enumerate(RESOURCES):
            asked = sum(one.size[number] * count for one, count in members)
            if sum(pod.size[number] for pod in here) + asked > case.nodes[node].room[number]:
                yield f"no room for {name} on node {node}"
        wanted = sum(count for one, count in members if one.port)
        if wanted and wanted + sum(pod.port for pod in here) > 1:
            yield f"the host port of node {node} taken twice"


def _of_queues(case: Case, placed: Places, gone: Sequence[Running]) -> Iterator[str]:
    if case.queues is None:
        return
    for name, queue in case.queues.items():
        for number in range(len(RESOURCES)):
            held = sum(pod.size[number] for pod in case.pods if pod.queue == name)
            taken = sum(pod.size[number] for pod in gone if pod.queue == name)
            most, least = queue.most[number], queue.least[number]
            if name != OWN_QUEUE and least and taken > max(0, held - least):
                yield f"queue {name} below its guarantee"
            asked = sum(case.classes[cls].size[number] * count for (cls, _), count in placed.items())
            if name == OWN_QUEUE and most is not None and held - taken + asked > most:
                yield "the gang's queue over its maximum"


__all__ = ["HOST", "NOTHING", "SHIFT", "Places", "Terms", "broken_rule", "terms_of"]
