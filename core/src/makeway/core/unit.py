"""What is evicted together or not at all, and all that its eviction costs: the one reader of a pod's price.

A *unit* is one pod, or the bound pods of a group of disruption mode `all`, on whatever nodes they run. Plans
for pods, for pods of DaemonSets, for groups and for quotas choose among units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

POD_RANK: Final = 1
GROUP_RANK: Final = 2
COMPOSITE_RANK: Final = 3
"""Of equal priority a composite group is more important than a group, and that than a pod: victimRank of
kube-scheduler 1.37."""

NO_QUEUE: Final = -1
"""The queue of a pod where there are no queues."""


class Unit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A unit as it is at one moment.

    * `uid`: of its pod; of the pods of a group, which are in `pods`, the group's kind and name.
    * `priority`: of the most important of its pods, each at the priority of its groups. `rank`: among equals.
    * `created_micros`: when the oldest of its pods was created, in microseconds since 1970.
    * `originator`: one of its pods is the first of its application; `owner`: it is that, or another pod's
      ownerReference names it. `opted_out`: one of its pods, or its class, asks to be taken last.
    * `exempt`: the rule that keeps it from being evicted for any quota; empty where none does.
    * `kept`: why its group keeps it, whoever preempts; empty where it may go.
    * `gang`: the PodGroup with a minCount that has fewer pods without it; empty where there is none.
    * `budgets`: of each of its pods that any covers, the number of its set of disruption budgets.
    * `terminating`: how many of its pods are being deleted.
    * `requests`: what its pods request together, by resource. `queue`: the number of a single pod's queue;
      `amounts`: of several pods, what they request by the number of their queue.
    """

    uid: str
    requests: Mapping[str, int]
    priority: int = 0
    rank: int = POD_RANK
    created_micros: int = 0
    originator: bool = False
    owner: bool = False
    opted_out: bool = False
    exempt: str = ""
    kept: str = ""
    gang: str = ""
    budgets: tuple[int, ...] = ()
    terminating: int = 0
    queue: int = NO_QUEUE
    pods: tuple[str, ...] = ()
    amounts: tuple[tuple[int, Mapping[str, int]], ...] = ()

    @property
    def uids(self) -> tuple[str, ...]:
        """UIDs of its pods."""
        return self.pods or (self.uid,)

    @property
    def size(self) -> int:
        """How many pods it is."""
        return len(self.pods) or 1


def whole(uid: str, units: list[Unit], *, rank: int, exempt: str, kept: str) -> Unit:
    """Return pods that go together as one unit. O(pods). `units`: each pod by itself.

    There is none where all that is known of it are pods that are being bound. It is as important as the most
    important of them. `exempt`, `kept`: of all together, beside their own.
    """
    total: dict[str, int] = {}
    by_queue: dict[int, dict[str, int]] = {}
    for one in units:
        of_queue = by_queue.setdefault(one.queue, {})
        for name, amount in one.requests.items():
            total[name] = total.get(name, 0) + amount
            of_queue[name] = of_queue.get(name, 0) + amount
    return Unit(
        uid=uid,
        requests=total,
        priority=max((one.priority for one in units), default=0),
        rank=rank,
        created_micros=min((one.created_micros for one in units), default=0),
        originator=any(one.originator for one in units),
        owner=any(one.owner for one in units),
        opted_out=any(one.opted_out for one in units),
        exempt=exempt or next((one.exempt for one in units if one.exempt), ""),
        kept=kept,
        budgets=tuple(held for one in units for held in one.budgets),
        terminating=sum(one.terminating for one in units),
        pods=tuple(one.uid for one in units),
        amounts=tuple(sorted(by_queue.items())),
    )
