"""How much of a need each leaf below a queue has to release: fairly, and never from a guarantee.

What a queue can release of a resource is what it uses above its guarantee, and no more than its children
can release together. A need is shared among children in proportion to what they can release, in whole
units by largest remainder, level by level down to the leaves (as in YuniKorn's design of quota preemption).
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from makeway.core.queues.amounts import Amounts
from makeway.core.queues.tree import Queue, QueueTree
from makeway.core.queues.usage import Usage


class Distribution:
    """The shares of one need below one queue.

    `running`: paths of queues that a process runs for; they and all below them release nothing, as the
    process takes what there is. O(queues below · resources needed).
    """

    def __init__(self, tree: QueueTree, usage: Usage, queue: Queue, need: Amounts, running: Set[str]) -> None:
        self._tree = tree
        self._usage = usage
        self._need = need
        self._releasable: dict[int, dict[str, int]] = {}
        self._fill(queue, running)
        for above in tree.line(queue.number)[1:]:
            self._cap(self._releasable[queue.number], above)
        own = self._releasable[queue.number]
        self.target = {name: min(amount, own[name]) for name, amount in need.items() if name in own}
        self.leaves: dict[int, dict[str, int]] = {}
        self._share(queue, self.target)

    def releasable(self, number: int) -> Amounts:
        """Return what a queue at or below the one concerned can release, of the resources needed."""
        return self._releasable.get(number, {})

    def _fill(self, queue: Queue, running: Set[str]) -> None:
        """Find what each queue can release, children before their parent."""
        skipped = -1
        inner: list[Queue] = []
        for one in self._tree.queues[queue.number : queue.below]:
            if one.number < skipped:
                continue
            held = self._usage.of(one.number)
            if not held or (one.path in running and one is not queue):
                skipped = one.below
                continue
            if not one.is_leaf:
                inner.append(one)
            own = {name: held[name] for name in self._need if held.get(name, 0) > 0}
            self._cap(own, one)
            self._releasable[one.number] = own
        for one in reversed(inner):
            self._cap_by_children(one)
        self._releasable.setdefault(queue.number, {})

    def _cap(self, own: dict[str, int], queue: Queue) -> None:
        """Leave what is not above a queue's guarantee."""
        held = self._usage.of(queue.number)
        for name in own.keys() & queue.guaranteed.keys():
            _lower(own, name, held.get(name, 0) - queue.guaranteed[name])

    def _cap_by_children(self, queue: Queue) -> None:
        own = self._releasable[queue.number]
        children = [self._releasable[one] for one in queue.children if one in self._releasable]
        for name in tuple(own):
            _lower(own, name, sum(child.get(name, 0) for child in children))

    def _share(self, queue: Queue, target: dict[str, int]) -> None:
        """Hand a target down. Queues that owe nothing are left out."""
        if not target:
            return
        if queue.is_leaf:
            self.leaves[queue.number] = target
            return
        shares: dict[int, dict[str, int]] = {}
        for name, amount in target.items():
            weights = [(one, self.releasable(one).get(name, 0)) for one in queue.children]
            for number, share in largest_remainder(amount, weights):
                shares.setdefault(number, {})[name] = share
        for number in sorted(shares):
            self._share(self._tree.queues[number], shares[number])


def largest_remainder(amount: int, weights: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Share an amount in proportion to weights, in whole units; the largest remainders get one more.

    `weights`: (number, weight) pairs; the amount is at most their sum, and no share is above its weight.
    Of equal remainders the earlier gets it. Shares of 0 are left out. O(n log n).
    """
    positive = [(number, weight) for number, weight in weights if weight > 0]
    total = sum(weight for _, weight in positive)
    if total == 0:
        return []
    shares = [amount * weight // total for _, weight in positive]
    remainders = [amount * weight % total for _, weight in positive]
    left = amount - sum(shares)
    for place in sorted(range(len(positive)), key=lambda place: -remainders[place])[:left]:
        shares[place] += 1
    return [(number, share) for (number, _), share in zip(positive, shares, strict=True) if share > 0]


def _lower(amounts: dict[str, int], name: str, most: int) -> None:
    if most <= 0:
        amounts.pop(name, None)
    elif most < amounts[name]:
        amounts[name] = most
