"""A second, slow way to the same plan: one node at a time, in plain Python, as kube-scheduler does it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from makeway.core.k8s.budget import PENDING, UNREADY, Budget
from makeway.core.k8s.importance import NOT_STARTED, microseconds
from makeway.core.policy.document import Policy
from makeway.core.policy.rules import PreemptionPair, PreemptorFacts, Rule, judge
from makeway.planner.snapshot.records import PodRecord
from unit.planner.building import NOW


@dataclass
class NodeCase:
    """A node as the reference sees it."""

    name: str
    allocatable: Mapping[str, int]
    pods: list[PodRecord]
    nominated: list[PodRecord]
    awaited: list[PodRecord]


@dataclass
class Answer:
    """What the reference finds on one node."""

    node: str
    victims: set[str]
    violations: int
    awaited: set[str]
    key: tuple[object, ...]


def fits(case: NodeCase, preemptor: PodRecord, present: list[PodRecord]) -> bool:
    for name, amount in preemptor.requests.items():
        used = sum(pod.requests.get(name, 0) for pod in (*present, *case.nominated))
        if used + amount > case.allocatable.get(name, 0):
            return False
    return True


def charged(pod: PodRecord, budgets: list[Budget], policy: Policy) -> list[Budget]:
    """Return the budgets that an eviction is charged to: where they are hard, as the eviction API has it."""
    named = pod.namespace, pod.name, pod.labels
    if not policy.has_hard_budgets(pod.namespace):
        return [one for one in budgets if one.covers(*named)]
    covering = [one for one in budgets if one.covers_eviction(*named)]
    unready = pod.health == UNREADY and len(covering) == 1 and covering[0].frees_unready
    return [] if unready or pod.health == PENDING else covering


def split(
    pods: list[PodRecord], budgets: list[Budget], debits: Mapping[str, int], policy: Policy
) -> tuple[list[PodRecord], list[PodRecord]]:
    left = {
        one.name: (one.allowed if one.settled or not policy.has_hard_budgets(one.namespace) else 0)
        - debits.get(one.name, 0)
        for one in budgets
    }
    violating: list[PodRecord] = []
    others: list[PodRecord] = []
    for pod in pods:
        violated = False
        for budget in charged(pod, budgets, policy):
            left[budget.name] -= 1
            violated |= left[budget.name] < 0
        (violating if violated else others).append(pod)
    return violating, others


def started(pod: PodRecord) -> int:
    return microseconds(NOW) if pod.start_micros == NOT_STARTED else pod.start_micros


def allowed(rules: Sequence[Rule], preemptor: PodRecord, pod: PodRecord) -> bool:
    return judge(rules, PreemptionPair(PreemptorFacts(preemptor.priority), pod.facts, NOW)).removable


def answer(
    case: NodeCase,
    preemptor: PodRecord,
    budgets: list[Budget],
    debits: Mapping[str, int],
    *,
    policy: Policy,
    rules: Sequence[Rule],
    refused: frozenset[str] = frozenset(),
) -> Answer | str | None:
    """Return the victims on one node, "unmodelled", or None where nothing helps."""

    def held(pods: list[PodRecord]) -> list[PodRecord]:
        return [pod for pod in pods if policy.has_hard_budgets(pod.namespace)]

    removable = [pod for pod in case.pods if pod.uid not in refused and allowed(rules, preemptor, pod)]
    spent = [
        pod
        for pod in held(removable)
        if split([pod], budgets, debits, policy)[0] or len(charged(pod, budgets, policy)) > 1
    ]
    removable = [pod for pod in removable if pod not in spent]
    removable.sort(key=lambda pod: pod.importance)
    if fits(case, preemptor, [*case.pods, *case.awaited]):
        return "unmodelled" if removable or case.awaited else None
    present = [pod for pod in case.pods if pod not in removable]
    waits = fits(case, preemptor, case.pods)
    victims: list[PodRecord] = []
    violations = 0
    if waits:
        present = list(case.pods)
    elif not removable or not fits(case, preemptor, present):
        return None
    else:
        violating, others = split(removable, budgets, debits, policy)
        for pod in (*violating, *others):
            if fits(case, preemptor, [*present, pod]):
                present.append(pod)
            else:
                victims.append(pod)
                violations += pod in violating and pod not in held([pod])
    if split(sorted(held(victims), key=lambda pod: pod.importance), budgets, debits, policy)[0]:
        return None
    if len(victims) > policy.limits.victims_per_order:
        return None
    awaited = []
    for pod in sorted(case.awaited, key=lambda pod: pod.importance):
        if fits(case, preemptor, [*present, pod]):
            present.append(pod)
        else:
            awaited.append(pod)
    gone = [*victims, *awaited]
    highest = max(pod.priority for pod in gone)
    key = (
        violations,
        highest,
        sum(pod.priority + 2**31 for pod in gone),
        len(gone),
        -min(started(pod) for pod in gone if pod.priority == highest),
        len(victims),
        case.name,
    )
    return Answer(case.name, {pod.uid for pod in victims}, violations, {pod.uid for pod in awaited}, key)
