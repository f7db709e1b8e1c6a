"""Reclaim: which pods of its own priority a pod may displace, since its queue is below its guarantee.

Sources: YuniKorn's preemption (`FindEligiblePreemptionVictims`), Kueue's `reclaimWithinCohort`. A queue takes
back what others use of its guarantee:

1. The deepest queue at or above the pod's own counts that stays within its guarantee with the pod, in every
   resource that the guarantee names and the pod requests. A queue without a guarantee takes nothing back.
2. Removable are pods outside that queue of the pod's very priority that hold some of these resources; not of
   system-critical priority, nor across a fence of the pod's own queues, nor of a queue that lends nothing.
   Lower ones are in any case.
3. No victim takes a queue below its guarantee. That holds for every preemption, and is not looked at here. So
   no pod that was displaced can take the room back, neither by its queue's guarantee nor by its priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from makeway.core.policy.facts import SYSTEM_CRITICAL_PRIORITY
from makeway.core.queues.amounts import Amounts
from makeway.core.queues.tree import Queue, QueueTree


@dataclass(frozen=True, slots=True)
class Reclaim:
    """What one preemptor may take back.

    `queue`: the one that stays within its guarantee; `resources`: those of the guarantee that the preemptor
    requests, by name. `priority`: the preemptor's. `lenders`: by number, the queues whose pods are removable.
    """

    tree: QueueTree
    queue: Queue
    resources: tuple[str, ...]
    priority: int
    lenders: tuple[bool, ...]

    def with_pod(self, path: str, priority: int, requests: Amounts) -> str:
        """Return what is taken back with a pod, for a person to read; empty where it may not go.

        `path`: of its queue, which may be of a tree that has been read since. Whether it is of a DaemonSet is
        not asked, nor whether queues hold it at all. O(resources).
        """
        number = self.tree.numbers.get(path)
        held = [name for name in self.resources if requests.get(name, 0) > 0]
        if not held or priority != self.priority or number is None or not self.lenders[number]:
            return ""
        return f"queue {self.queue.path} takes {', '.join(held)} back from queue {path}"


def reclaims(
    tree: QueueTree, leaf: int, asked: Amounts, priority: int, held: Callable[[int], Amounts]
) -> Iterator[Reclaim]:
    """Yield what each queue at or above a pod's, or a group's, may take back for it; the deepest counts.

    `leaf`: the number of its queue; `asked`: what it requests, a group all of it; `held`: what is used of a
    queue by its number, also by pods on their way into it. Who cannot count that gives nothing held, and any
    of these may be the one that counts. O(queues) each.
    """
    if not tree.reclaim or priority >= SYSTEM_CRITICAL_PRIORITY:
        return
    for queue in tree.line(leaf):
        used = held(queue.number)
        left = {name: least - used.get(name, 0) for name, least in queue.guaranteed.items()}
        named = tuple(sorted(name for name in left if asked.get(name, 0) > 0))
        if named and all(asked[name] <= left[name] for name in named):
            yield Reclaim(tree, queue, named, priority, _lenders(tree, leaf, queue))


def beyond_guarantees(
    tree: QueueTree, leaf: int, asked: Amounts, held: Callable[[int], Amounts]
) -> Iterator[tuple[Queue, str, int]]:
    """Yield the queues at or above a pod's that it would take beyond their guarantee, the deepest first.

    Each with the first such resource and what is used of it now. The arguments are those of `reclaims`.
    """
    for queue in tree.line(leaf):
        used = held(queue.number)
        for name, least in sorted(queue.guaranteed.items()):
            if (more := asked.get(name, 0)) and used.get(name, 0) + more > least:
                yield queue, name, used.get(name, 0)
                break


def reclaims_in(tree: QueueTree, queue: Queue) -> Queue | None:
    """Return within which queue one takes back what others use of its guarantee; None where it never does.

    Pods of a queue below it that is fenced take back less. O(depth).
    """
    fence = _fence(tree, queue.number)
    return fence if tree.reclaim and queue.guaranteed and fence is not queue else None


def _fence(tree: QueueTree, number: int) -> Queue:
    """Return the deepest fence around a queue, itself included; root where there is none."""
    return next((one for one in tree.line(number) if one.fenced), tree.queues[0])


def _lenders(tree: QueueTree, leaf: int, taking: Queue) -> tuple[bool, ...]:
    """Return by number which queues lend: inside the deepest fence around a leaf, but the one that takes."""
    fence = _fence(tree, leaf)
    return tuple(
        one.lends
        and fence.number <= one.number < fence.below
        and not taking.number <= one.number < taking.below
        for one in tree
    )
