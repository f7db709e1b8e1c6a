"""Pods of one node for the tests of the simple preemptor, in one line each."""

from collections.abc import Iterable, Mapping

from makeway.core.daemonset.occupant import BudgetKey, Occupant, PodClass
from makeway.core.daemonset.selection import NoSelection, select
from makeway.core.daemonset.strategies import Multiple, Single
from makeway.core.policy.document import DaemonSets, Strategy

REGULAR, OWNER, OPTED_OUT = PodClass.REGULAR, PodClass.OWNER, PodClass.OPTED_OUT


def a_pod(
    uid: str | int,
    size: int | Mapping[str, int],
    *,
    pod_class: PodClass = REGULAR,
    priority: int = 10,
    created: int = 0,
    budgets: Iterable[BudgetKey] = (),
) -> Occupant:
    amounts = {"cpu": size} if isinstance(size, int) else dict(size)
    return Occupant(str(uid), pod_class, priority, created, amounts, tuple(budgets))


def mixed_node() -> list[Occupant]:
    """Ten pods of all classes that take 76 together."""
    return [
        a_pod(1, 10),
        a_pod(2, 8),
        a_pod(3, 10, priority=15),
        a_pod(4, 5),
        a_pod(5, 5, priority=5),
        a_pod(6, 10, pod_class=OPTED_OUT),
        a_pod(7, 8, pod_class=OPTED_OUT),
        a_pod(8, 10, pod_class=OPTED_OUT, priority=15),
        a_pod(9, 5, pod_class=OWNER),
        a_pod(10, 5, pod_class=OWNER, priority=5),
    ]


def chosen(
    pods: Iterable[Occupant],
    need: int | Mapping[str, int],
    request: int | Mapping[str, int] | None = None,
    *,
    strategy: Strategy = "single,multiple",
    deviation: int = 10,
    most: int = 10,
    allowance: Mapping[BudgetKey, int] | None = None,
) -> Single | Multiple | NoSelection:
    """Choose for a pod whose request is its need, unless told otherwise."""
    needed = {"cpu": need} if isinstance(need, int) else dict(need)
    asked = needed if request is None else {"cpu": request} if isinstance(request, int) else dict(request)
    settings = DaemonSets(
        enabled=True,
        preemption_victim_pods_selection_strategy=strategy,
        single_max_deviation_percent=deviation,
    )
    return select(list(pods), needed, asked, settings, most_victims=most, allowance=allowance or {})


def victims(found: Single | Multiple | NoSelection) -> list[str]:
    """Return the UIDs of the victims, in order; of a refusal, none."""
    return [] if isinstance(found, NoSelection) else [pod.uid for pod in found.victims]
