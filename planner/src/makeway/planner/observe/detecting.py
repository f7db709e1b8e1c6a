"""Preemptions that no plan was asked for: by DefaultPreemption, by a fallback, by another scheduler.

The API shows marks on pods of one node, and a pod of higher priority, of the scheduler that the marks name,
that is nominated to it; either comes first. A mark that a waiting plan claims calls for no preemptor. Pure
state: it is told what the watch sees, and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from makeway.core.k8s.objects import Pod
from makeway.planner.observe.pairing import WINDOW, Evicted

MOST_NOMINEES: Final = 10_000
"""Nominated pods that are followed; for one more the eldest is forgotten."""

UNCLAIMED: Final = timedelta(seconds=1)
"""So long a mark waits for a pod that is nominated newly; then it may be of one that was nominated before."""


@dataclass(frozen=True, slots=True)
class UnaskedPreemption:
    """A preemption as its first marks show it. `pod`: the preemptor, as it was when it was nominated.

    `at`, `revision`: when its first mark was seen, and the snapshot's revision then.
    """

    pod: Pod
    node: str
    nominated_at: datetime
    at: datetime
    revision: int


@dataclass(slots=True)
class _Nominee:
    pod: Pod
    node: str
    at: datetime
    told: datetime | None = None


class Nominees:
    """The pods that wait for their room, by the node that they are nominated to. O(1) a pod event."""

    def __init__(self) -> None:
        self._nominees: dict[str, _Nominee] = {}
        self._on_node: dict[str, dict[str, _Nominee]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._nominees)

    def put(self, pod: Pod, now: datetime) -> str:
        """Take in a pod; return the node that it is newly nominated to, empty where it is not."""
        uid = pod.metadata.uid
        node = "" if pod.spec.node_name else pod.status.nominated_node_name or ""
        known = self._nominees.get(uid)
        if not node:
            if known is not None:
                self.drop(uid)
            return ""
        if known is not None and known.node == node:
            return ""
        self.drop(uid)
        if len(self._nominees) >= MOST_NOMINEES:
            self.drop(next(iter(self._nominees)))
        nominee = _Nominee(pod, node, now)
        self._nominees[uid] = nominee
        self._on_node.setdefault(node, {})[uid] = nominee
        return node

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        nominee = self._nominees.pop(uid, None)
        if nominee is None:
            return
        here = self._on_node[nominee.node]
        del here[uid]
        if not here:
            del self._on_node[nominee.node]

    def retain(self, uids: set[str]) -> None:
        """Forget all pods but these."""
        for uid in self._nominees.keys() - uids:
            self.drop(uid)

    def all(self) -> Iterable[tuple[Pod, str]]:
        """Return all of them, each with its node."""
        return ((one.pod, one.node) for one in self._nominees.values())

    def behind(
        self, node: str, marks: Iterable[Evicted], now: datetime, asked: Callable[[str], bool]
    ) -> list[UnaskedPreemption]:
        """Return the preemptions that marks on a node tell of, each once.

        `marks`: those that nothing claims, the eldest first. `asked`: whether a plan was asked for a pod, or
        an order makes room for it. O(marks · nominees of the node).
        """
        marks = list(marks)
        found = []
        for uid, nominee in self._on_node.get(node, {}).items():
            if asked(uid):
                nominee.told = now
                continue
            first = next((mark for mark in marks if _may_be_behind(nominee, mark, now)), None)
            if first is not None:
                nominee.told = now
                found.append(UnaskedPreemption(nominee.pod, node, nominee.at, first.at, first.revision))
        return found


def _may_be_behind(nominee: _Nominee, mark: Evicted, now: datetime) -> bool:
    pod = nominee.pod
    if (pod.spec.priority or 0) <= mark.gone.priority or (pod.spec.scheduler_name or "") != mark.scheduler:
        return False
    if nominee.told is not None and mark.at <= nominee.told + WINDOW:
        return False
    newly = abs(mark.at - nominee.at) <= WINDOW
    return newly or (nominee.at < mark.at and now - mark.at >= UNCLAIMED)
