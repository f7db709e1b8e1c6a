"""The documented rules (docs/policies) once more, from a drawn case alone; sets of pods by brute force."""

from collections.abc import Collection, Iterator
from itertools import chain, combinations
from typing import Final

from pairs.drawing import ENVS, Case, Condition, Pod, Side, is_below

VALUE: Final = 0
"""Of the classes of pods that run."""
SOON: Final = 60
"""Seconds of its grace for which a terminating pod is waited for."""
Element = tuple[Pod, ...]
"""What is evicted together: one pod, or all of a group that goes whole."""


def priority_of(case: Case, pod: Pod) -> int:
    """Return the priority that counts: the group's."""
    return case.groups[pod.group].priority if pod.group else pod.priority


def kept(case: Case, pod: Pod) -> str:
    """Return the policy's or the class's rule that keeps a pod from this preemptor; empty where none does."""
    if protection := protected(case, pod):
        return protection
    if tolerates(case, pod):
        return "preemption-toleration"
    return "preemption-rule" if rule_keeps(case, case.preemptor, pod) else ""


def rule_keeps(case: Case, preemptor: Pod | None, pod: Pod) -> bool:
    """Report whether the first rule that matches both sides keeps a pod; None: of a quota."""
    for rule in case.rules:
        if preemptor is None and rule.preemptors != Side():
            continue
        if preemptor is not None and not _is_meant(rule.preemptors, preemptor):
            continue
        if _is_meant(rule.victims, pod):
            young = preemptor is not None and pod.scheduled_ago < rule.least
            return not rule.allow or young
    return False


def _is_meant(side: Side, pod: Pod) -> bool:
    return (
        _holds(side.env, ENVS[pod.namespace])
        and _holds(side.tier, pod.tier)
        and (not side.classes or pod.priority_class in side.classes)
        and (not side.queues or any(is_below(pod.queue, one) for one in side.queues))
    )


def _holds(condition: Condition | None, value: str) -> bool:
    if condition is None:
        return True
    listed = value != "" and value in condition.values
    found = {"In": listed, "NotIn": not listed, "Exists": value != "", "DoesNotExist": value == ""}
    return found[condition.operator]


def protected(case: Case, pod: Pod) -> str:
    """Return the rule of the policy that protects a pod."""
    if not case.on("protection"):
        return ""
    if pod.namespace == "vault":
        return "protected-namespace"
    if priority_of(case, pod) >= 5:
        return "protected-priority"
    return "never-evict" if pod.never_evict and pod.namespace == "tools" else ""


def tolerates(case: Case, pod: Pod) -> bool:
    """Report whether a pod's class exempts it: as it is, or as it is on record where it is gone."""
    found = case.classes.get(pod.priority_class)
    if found is None or (found.gone and not found.recorded) or found.seconds == 0:
        return False
    minimum = VALUE + 1 if found.minimum is None else found.minimum
    return case.preemptor.priority < minimum and (found.seconds < 0 or pod.scheduled_ago <= found.seconds)


def of_daemonset(case: Case) -> bool:
    """Report whether the simple preemptor for pods of DaemonSets decides."""
    return case.preemptor.daemon


def removable(case: Case, pod: Pod, *, simple: bool = False) -> bool:
    """Report whether a pod may be evicted for the preemptor, as far as it is looked at by itself.

    `simple`: by the simple preemptor for pods of DaemonSets, which takes equals.
    """
    if pod.left is not None or kept(case, pod):
        return False
    priority = priority_of(case, pod)
    if simple:
        return priority <= case.preemptor.priority and not pod.daemon
    return priority < case.preemptor.priority


def whole(case: Case, pod: Pod) -> tuple[Pod, ...]:
    """Return the pods of the group that goes whole with a pod; terminating ones leave by themselves."""
    if not pod.group or not case.groups[pod.group].whole:
        return ()
    return tuple(one for one in case.pods if one.group == pod.group and one.left is None)


def elements(case: Case, pods: Collection[Pod]) -> list[Element]:
    """Return what of some pods, of which none is terminating, is evicted together, with pods elsewhere."""
    running = [pod for pod in pods if pod.left is None]
    return list(dict.fromkeys(whole(case, pod) or (pod,) for pod in running))


def broken(case: Case, victims: Collection[Pod], *, node: int) -> str:
    """Return the rule that a set of victims for the preemptor breaks; empty where it breaks none.

    Where the documents leave open how terminating pods count in queues, the set may pass either way; what is
    promised (`strict` below) passes both.
    """
    together = set(victims)
    for pod in victims:
        unit = whole(case, pod)
        simple = of_daemonset(case) and not unit and pod.node == node
        if not removable(case, pod, simple=simple) and not removable(case, pod):
            return f"{pod.name} is not removable: {kept(case, pod) or priority_of(case, pod)}"
        if not together.issuperset(unit):
            return f"group {pod.group} does not go whole"
        if not unit and pod.node != node:
            return f"{pod.name} is on another node"
    if len(victims) > case.victims_per_order:
        return f"{len(victims)} victims, {case.victims_per_order} allowed"
    return budget_broken(case, victims) or guarantee_broken(case, victims) or maximum_passed(case, victims)


def budget_broken(case: Case, victims: Collection[Pod]) -> str:
    """Return the hard budget that these victims violate together."""
    if case.on("hard-budgets"):
        for name, allowed in case.budgets.items():
            if sum(pod.budget == name for pod in victims) > allowed:
                return f"hard budget {name} is violated"
    return ""


def guarantee_broken(case: Case, victims: Collection[Pod], *, strict: bool = False) -> str:
    """Return the queue of others that these victims take below its guarantee."""
    for name, queue in case.queues.items():
        freed = freed_in(victims, name)
        if not freed or is_below(case.preemptor.queue, name):
            continue
        if used(case, name, leaving=not strict) - freed < queue.guaranteed:
            return f"{name} falls below its guarantee"
    return ""


def maximum_passed(case: Case, victims: Collection[Pod], *, strict: bool = False) -> str:
    """Return the queue that would be over its maximum with the preemptor in it."""
    for name, queue in case.queues.items():
        if queue.maximum is None or not is_below(case.preemptor.queue, name):
            continue
        after = used(case, name, leaving=strict) - freed_in(victims, name) + case.preemptor.cpu
        if after > queue.maximum:
            return f"{name} is over its maximum: {after} of {queue.maximum}"
    return ""


def used(case: Case, queue: str, *, leaving: bool = True) -> int:
    """Return what a queue uses in cores, with or without its terminating pods."""
    return freed_in([pod for pod in case.pods if leaving or pod.left is None], queue)


def freed_in(pods: Collection[Pod], queue: str) -> int:
    """Return what pods use in a queue, in cores."""
    return sum(pod.cpu for pod in pods if is_below(pod.queue, queue))


def free(case: Case, node: int, longest: int | None = None) -> int:
    """Return what is free on a node; `longest`: once pods with so many seconds of grace left are gone."""
    there = [
        pod
        for pod in case.pods
        if pod.node == node
        and not (longest is not None and pod.left is not None and 0 <= pod.left <= longest)
    ]
    return case.nodes[node] - sum(pod.cpu for pod in there)


def fits(case: Case, node: int) -> bool:
    """Report whether the preemptor has room on a node as it is."""
    mine = not of_daemonset(case) or node == case.preemptor.node
    return mine and free(case, node) >= case.preemptor.cpu and not maximum_passed(case, (), strict=True)


def coming(case: Case, node: int) -> bool:
    """Report whether pods that leave soon make the room by themselves."""
    return free(case, node, SOON) >= case.preemptor.cpu and not maximum_passed(case, (), strict=True)


def on_its_way(case: Case) -> bool:
    """Report whether the preemptor's queue is full, and pods that leave soon make the room that it lacks."""
    leaving = [pod for pod in case.pods if pod.left is not None and 0 <= pod.left <= SOON]
    full = maximum_passed(case, (), strict=True)
    return bool(full) and not maximum_passed(case, leaving, strict=True)


def feasible(case: Case, node: int) -> bool:
    """Report whether the documents promise room on a node.

    They do not while terminating pods make the room in the preemptor's queue. They do where a legal set of
    victims makes it, whichever pods are kept where a guarantee or a hard budget keeps some of several, and
    whichever are chosen where an order may not have more. No group is counted on of which a part is leaving,
    and none for a pod of a DaemonSet.
    """
    if on_its_way(case):
        return False
    simple = of_daemonset(case)
    found = [
        one
        for one in elements(case, [pod for pod in case.pods if pod.node == node])
        if all(removable(case, pod, simple=simple) for pod in one)
        and not (whole(case, one[0]) and (simple or is_leaving(case, one[0].group)))
    ]
    legal = [set(chosen) for chosen in subsets(found) if not _together_broken(case, chosen)]
    largest = [one for one in legal if not any(one < other for other in legal)]
    enough = [one for one in legal if _makes_room(case, one, node)]
    smallest = [one for one in enough if not any(other < one for other in enough)]
    return all(_makes_room(case, one, node) for one in largest) and all(
        len(one) <= case.victims_per_order for one in smallest
    )


def is_leaving(case: Case, group: str) -> bool:
    """Report whether a pod of a group is terminating."""
    return any(pod.group == group and pod.left is not None for pod in case.pods)


def _together_broken(case: Case, victims: Collection[Pod]) -> str:
    """Return what keeps some of several pods that could be evicted each by itself."""
    return guarantee_broken(case, victims, strict=True) or budget_broken(case, victims)


def _makes_room(case: Case, victims: Collection[Pod], node: int) -> bool:
    freed = sum(pod.cpu for pod in victims if pod.node == node)
    room = free(case, node, SOON) + freed >= case.preemptor.cpu
    return room and not maximum_passed(case, victims, strict=True)


def quota_removable(case: Case, pod: Pod) -> bool:
    """Report whether a lowered quota may take a pod, as far as it is looked at by itself."""
    stays = pod.daemon or protected(case, pod) or rule_keeps(case, None, pod)
    return pod.left is None and not stays


def quota_broken(case: Case, victims: Collection[Pod], queue: str) -> str:
    """Return the rule that the victims of a lowered quota break."""
    together = set(victims)
    for pod in victims:
        if not quota_removable(case, pod):
            return f"{pod.name} is not removable"
        unit = whole(case, pod)
        if not together.issuperset(unit):
            return f"group {pod.group} does not go whole"
        if not unit and not is_below(pod.queue, queue):
            return f"{pod.name} is in another queue"
    if rule := budget_broken(case, victims):
        return rule
    for name, limits in case.queues.items():
        freed = freed_in(victims, name)
        if freed and used(case, name, leaving=False) - freed < limits.guaranteed:
            return f"{name} falls below its guarantee"
    return ""


def quota_feasible(case: Case, queue: str) -> bool:
    """Report whether the documents promise that a queue comes down to its maximum.

    They do where it does whichever pods are kept by a guarantee or a hard budget that keeps some of several.
    """
    found = [
        one
        for one in elements(case, [pod for pod in case.pods if is_below(pod.queue, queue)])
        if all(quota_removable(case, pod) for pod in one)
        and len(one) <= case.victims_per_order
        and not (whole(case, one[0]) and is_leaving(case, one[0].group))
    ]
    legal = [set(chosen) for chosen in subsets(found) if not quota_broken(case, chosen, queue)]
    largest = [one for one in legal if not any(one < other for other in legal)]
    over = used(case, queue, leaving=False) - (case.queues[queue].maximum or 0)
    return all(freed_in(one, queue) >= over for one in largest)


def subsets(found: list[Element]) -> Iterator[list[Pod]]:
    """Return every union of some elements, smaller ones first."""
    for chosen in chain.from_iterable(combinations(found, number) for number in range(len(found) + 1)):
        yield [pod for element in chosen for pod in element]
