"""How victims are chosen among the pods of one node: `single` and `multiple`.

Both are given the `need`: what the node lacks for the pod, by resource type, and only types that it
lacks. Both return the same answer for the same pods in any order. Source: the simple preemptor's design
for YuniKorn; that free room counts, and the tie-breaks, are makeway's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from makeway.core.daemonset.occupant import BudgetKey, Occupant, PodClass, most_important_first

Need = Mapping[str, int]
Allowance = Mapping[BudgetKey, int]
"""How many covered pods each budget lets go; a budget that is not in it lets all go."""


@dataclass(frozen=True, slots=True)
class Single:
    """One victim. `deviation`: how far it is larger than needed, as a share of the request."""

    victim: Occupant
    deviation: Fraction

    @property
    def victims(self) -> tuple[Occupant, ...]:
        """The victim, as the other strategy returns its own."""
        return (self.victim,)


@dataclass(frozen=True, slots=True)
class Multiple:
    """Some victims, the first taken first."""

    victims: tuple[Occupant, ...]


@dataclass(frozen=True, slots=True)
class NoneCovers:
    """No single pod holds what is needed."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Every pod that alone would do is too large; `deviation`: of the one that is so the least."""

    deviation: Fraction


@dataclass(frozen=True, slots=True)
class TooMany:
    """It takes `needed` victims, which is more than may go."""

    needed: int


@dataclass(frozen=True, slots=True)
class TooLittle:
    """All pods together hold less than is needed; `short`: what would still be missing, by type."""

    short: Need


def single(
    pods: Iterable[Occupant],
    need: Need,
    request: Need,
    *,
    max_deviation_percent: int,
    allowance: Allowance,
) -> Single | NoneCovers | TooLarge:
    """Choose the one pod nearest to the need, in the first class that has a fit one. O(n log n).

    Its deviation is (victim - need) / request, of the type where that is largest. Ties: the lower
    priority, the younger, the smaller, the lower UID.
    """
    limit = Fraction(max_deviation_percent, 100)
    covering = [
        (deviation(pod, need, request), pod)
        for pod in pods
        if pod.covers(need) and _allowed(pod, allowance, Counter())
    ]
    if not covering:
        return NoneCovers()

    def order(one: tuple[Fraction, Occupant]) -> tuple[Fraction, int, int, Fraction, str]:
        far, pod = one
        return far, pod.priority, -pod.created_micros, pod.size(need), pod.uid

    near = [one for one in covering if one[0] <= limit]
    if not near:
        return TooLarge(min(covering, key=order)[0])
    first = min(pod.pod_class for _, pod in near)
    far, pod = min((one for one in near if one[1].pod_class == first), key=order)
    return Single(pod, far)


def multiple(
    pods: Iterable[Occupant], need: Need, *, max_victims: int, allowance: Allowance
) -> Multiple | TooMany | TooLittle:
    """Take pods until the need is covered, then reprieve those that it does not take. O(n log n).

    Order of taking: class, the lower priority, the larger, the younger, the lower UID; where budgets let too
    little go so, the larger before all else. `max_victims` bounds the pods that go, not those that were taken
    on the way.
    """

    def order(pod: Occupant) -> tuple[PodClass, int, Fraction, int, str]:
        return pod.pod_class, pod.priority, -pod.size(need), -pod.created_micros, pod.uid

    in_order = sorted(pods, key=order)
    taken, missing = _taken(in_order, need, allowance)
    if missing and allowance:
        larger, still = _taken(sorted(in_order, key=lambda pod: -pod.size(need)), need, allowance)
        if not still:
            taken, missing = larger, still
    if missing:
        return TooLittle(missing)
    victims = tuple(needed_of(taken, need))
    return Multiple(victims) if len(victims) <= max_victims else TooMany(len(victims))


def _taken(pods: Iterable[Occupant], need: Need, allowance: Allowance) -> tuple[list[Occupant], Need]:
    """Return the pods that are taken in an order, and what is missing without all of them."""
    missing = dict(need)
    used: Counter[BudgetKey] = Counter()
    taken: list[Occupant] = []
    for pod in pods:
        if not missing:
            break
        if not any(pod.amounts.get(name, 0) for name in missing) or not _allowed(pod, allowance, used):
            continue
        taken.append(pod)
        used.update(pod.budgets)
        missing = {
            name: amount - pod.amounts.get(name, 0)
            for name, amount in missing.items()
            if amount > pod.amounts.get(name, 0)
        }
    return taken, missing


def needed_of(pods: Iterable[Occupant], need: Need) -> list[Occupant]:
    """Reprieve the pods that the need, which all these cover, leaves over, most important first. O(n log n).

    None of those that it returns could stay in its turn, nor at the end. They keep their order.
    """
    going = list(pods)
    spare = {name: sum(pod.amounts.get(name, 0) for pod in going) - amount for name, amount in need.items()}
    stay = set()
    for pod in sorted(going, key=most_important_first):
        if all(pod.amounts.get(name, 0) <= amount for name, amount in spare.items()):
            stay.add(pod.uid)
            spare = {name: amount - pod.amounts.get(name, 0) for name, amount in spare.items()}
    return [pod for pod in going if pod.uid not in stay]


def deviation(pod: Occupant, need: Need, request: Need) -> Fraction:
    """Return how far a pod is larger than the need, as a share of the request: of the type where most."""
    return max(
        (Fraction(pod.amounts.get(name, 0) - amount, request[name]) for name, amount in need.items()),
        default=Fraction(),
    )


def _allowed(pod: Occupant, allowance: Allowance, used: Counter[BudgetKey]) -> bool:
    return all(used[key] < allowance[key] for key in pod.budgets if key in allowance)
