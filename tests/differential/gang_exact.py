"""The least price of a plan for a gang, by looking at all of them; and whether a plan breaks a rule.

It knows nothing of the planner's code but SHIFT. For each set of units that go, nodes are looked at one after
the other: of each every count of members with every set of pods that makes room. What is kept are the best
prices for each number of members placed, pods taken from each budget and gang, and zones used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product

from differential.gang_cases import HOST, PRIORITY, ZONE, Case, Running

SHIFT = 2**31
NOTHING = -(2**40)

Terms = tuple[int, int, int, int, int, int]
"""Budgets violated, highest priority, groups broken, victims of that priority, sum of priorities, victims."""

Cost = tuple[int, int, int, int]
"""Highest priority, victims of that priority, sum of priorities, victims."""

State = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], frozenset[str]]
"""Members placed by class, pods taken by budget, pods taken by gang, zones that have a member."""


def cheapest(case: Case) -> Terms | None:
    """Return the price of the best plan; None where there is none."""
    nodes = range(len(case.sizes))
    if not case.one_zone:
        return _best(_of_units(case, nodes))
    zones = sorted(set(case.zones))
    return _best(_of_units(case, [node for node in nodes if case.zones[node] == zone]) for zone in zones)


def _best(found: Iterator[Terms | None] | Terms | None) -> Terms | None:
    if found is None or isinstance(found, tuple):
        return found
    return min((one for one in found if one is not None), default=None)


def _of_units(case: Case, nodes: Sequence[int]) -> Terms | None:
    """Return the best over all sets of units that have pods on these nodes."""
    units = sorted({pod.group for pod in case.pods if pod.group in case.units and pod.node in nodes})
    units = [unit for unit in units if all(pod.priority < PRIORITY for pod in case.pods if pod.group == unit)]
    sets = chain.from_iterable(combinations(units, size) for size in range(len(units) + 1))
    return min(
        (price for gone in sets if (price := _with_units(case, nodes, frozenset(gone))) is not None),
        default=None,
    )


def _with_units(case: Case, nodes: Sequence[int], units: frozenset[str]) -> Terms | None:
    budgets, gangs = sorted(case.budgets), sorted(case.gangs)
    whole = [pod for pod in case.pods if pod.group in units]
    base = Counter(pod.budget for pod in whole if pod.budget)
    start: State = (
        (0,) * len(case.classes),
        tuple(base[name] for name in budgets),
        (0,) * len(gangs),
        frozenset(),
    )
    states: dict[State, set[Cost]] = {start: {_paid((NOTHING, 0, 0, 0), whole)}}
    for node in nodes:
        options = list(_options(case, node, units))
        found = {state: set(costs) for state, costs in states.items()}
        for (state, costs), (members, victims) in product(list(states.items()), options):
            after = _after(case, state, node, members, victims)
            if after is None:
                continue
            paid = found.setdefault(after, set())
            paid.update(_paid(cost, victims) for cost in costs)
        states = {state: _undominated(costs) for state, costs in found.items()}
    return min(
        (
            price
            for state, costs in states.items()
            if sum(state[0]) == case.must
            for price in _prices(case, state, costs, len(units))
        ),
        default=None,
    )


def _prices(case: Case, state: State, costs: set[Cost], units: int) -> Iterator[Terms]:
    taken = zip(sorted(case.budgets), state[1], strict=True)
    violated = sum(max(0, count - case.budgets[name]) for name, count in taken)
    broken = units + sum(
        _breaks(case, gang, lost) for gang, lost in zip(sorted(case.gangs), state[2], strict=True)
    )
    for highest, as_high, total, count in costs:
        yield violated, highest, broken, as_high, total, count


def _paid(cost: Cost, victims: Sequence[Running]) -> Cost:
    """Return a cost with more victims."""
    before, as_high, total, count = cost
    highest = max([before, *(pod.priority for pod in victims)])
    as_high = (as_high if before == highest else 0) + sum(pod.priority == highest for pod in victims)
    return highest, as_high, total + sum(pod.priority + SHIFT for pod in victims), count + len(victims)


def _breaks(case: Case, gang: str, lost: int) -> bool:
    bound = sum(pod.group == gang for pod in case.pods)
    return lost > 0 and bound >= case.gangs[gang] > bound - lost


def _undominated(costs: set[Cost]) -> set[Cost]:
    """Return the least sums for each highest priority and number of victims of it."""
    kept: set[Cost] = set()
    least: tuple[int, int] | None = None
    for cost in sorted(costs):
        if least is None or cost[2:] < least:
            kept.add(cost)
            least = cost[2:]
    return kept


def _options(
    case: Case, node: int, units: frozenset[str]
) -> Iterator[tuple[tuple[int, ...], tuple[Running, ...]]]:
    """Yield members on a node with pods that make room for them, none of which could stay."""
    here = [pod for pod in case.pods if pod.node == node]
    single = [pod for pod in here if pod.group not in case.units and pod.priority < PRIORITY]
    stay = [pod for pod in here if pod not in single and pod.group not in units]
    for members in product(*(range(min(one.count, case.must) + 1) for one in case.classes)):
        if not 0 < sum(members) <= case.must:
            continue
        if any(many > 1 and one.apart for many, one in zip(members, case.classes, strict=True)):
            continue
        fitting: list[frozenset[Running]] = []
        for size in range(len(single) + 1):
            for gone in combinations(single, size):
                if any(known <= set(gone) for known in fitting):
                    continue
                left = [*stay, *(pod for pod in single if pod not in gone)]
                if _room(case, node, left, members):
                    fitting.append(frozenset(gone))
        for victims in fitting:
            yield members, tuple(victims)


def _room(case: Case, node: int, pods: Sequence[Running], members: tuple[int, ...]) -> bool:
    asked = sum(many * one.size for many, one in zip(members, case.classes, strict=True))
    ports = sum(pod.port for pod in pods)
    wanted = sum(many for many, one in zip(members, case.classes, strict=True) if one.port)
    fits = sum(pod.size for pod in pods) + asked <= case.sizes[node]
    return fits and (not wanted or ports + wanted <= 1)


def _after(
    case: Case, state: State, node: int, members: tuple[int, ...], victims: tuple[Running, ...]
) -> State | None:
    placed = tuple(had + more for had, more in zip(state[0], members, strict=True))
    if sum(placed) > case.must or any(had > one.count for had, one in zip(placed, case.classes, strict=True)):
        return None
    zones = state[3]
    if any(many and one.apart == ZONE for many, one in zip(members, case.classes, strict=True)):
        if case.zones[node] in zones:
            return None
        zones |= {case.zones[node]}
    budget = Counter(pod.budget for pod in victims)
    gang = Counter(pod.group for pod in victims)
    taken = tuple(had + budget[name] for name, had in zip(sorted(case.budgets), state[1], strict=True))
    lost = tuple(had + gang[name] for name, had in zip(sorted(case.gangs), state[2], strict=True))
    return placed, taken, lost, zones


def broken_rule(case: Case, placed: Sequence[tuple[int, int, int]], victims: set[str]) -> str:
    """Return which rule a plan breaks; empty where it breaks none.

    `placed`: class, node and count. `victims`: UIDs.
    """
    gone = [pod for pod in case.pods if pod.uid in victims]
    left = [pod for pod in case.pods if pod.uid not in victims]
    counts: Counter[tuple[int, int]] = Counter()
    for cls, node, many in placed:
        counts[cls, node] += many
    if len(gone) != len(victims):
        return "a victim that is not there"
    if sum(counts.values()) < case.must:
        return "fewer members than must be placed"
    if any(pod.priority >= PRIORITY for pod in gone):
        return "a victim that is not of lower priority"
    if any(pod.group in case.units and pod.group in {one.group for one in gone} for pod in left):
        return "a unit that does not go whole"
    if case.one_zone and len({case.zones[node] for _, node in counts}) > 1:
        return "members in two domains"
    for number, one in enumerate(case.classes):
        mine = {node: many for (cls, node), many in counts.items() if cls == number}
        if sum(mine.values()) > one.count:
            return "more members than wait"
        places = [
            case.zones[node] if one.apart == ZONE else str(node) for node, n in mine.items() for _ in range(n)
        ]
        if one.apart in (HOST, ZONE) and len(places) != len(set(places)):
            return "members too near to one another"
    for node in range(len(case.sizes)):
        members = tuple(counts[cls, node] for cls in range(len(case.classes)))
        if sum(members) and not _room(case, node, [pod for pod in left if pod.node == node], members):
            return f"no room on node {node}"
    return ""
