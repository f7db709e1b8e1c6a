"""Following the pods of namespaces from which units go, so that not every order lists them.

A list of 10,000 pods takes a second, and orders that share a unit go one after another. So the first order
that has a unit of a namespace lists its pods, and those after it ask a watch. A watch may be behind, or hear
nothing. What an order rests on is proven: its own marks have come by. Of one resource a later change has a
higher version (KEP-5504, promised since Kubernetes 1.35), and a watch leaves none out.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Final, NoReturn
from urllib.parse import quote

from makeway.core.k8s.by_uid import ByUid
from makeway.core.k8s.pod_groups import GroupKey
from makeway.evictor.judge.members import GroupedPod, GroupMember, Members, member_of
from makeway.evictor.metrics import EvictorMetrics
from makeway.runtime.listwatch import ListWatch, ObjectReader, Resource

MOST_FOLLOWED: Final = 16
"""Namespaces that are followed at the same time; of others each order lists the pods."""

UNUSED_SECONDS: Final = 600.0
"""A namespace that no order has asked about for so long is not followed any more."""

PROOF_SECONDS: Final = 1.0
"""How long a watch may take to bring a change that was made before. Then the pods are listed."""

_LOOK_SECONDS: Final = 60.0


class _Namespace(ByUid[GroupedPod, tuple[GroupKey, GroupMember]]):
    """The members in one namespace, as a watch has them, and what became of the watch."""

    def __init__(self, api: ObjectReader, name: str, metrics: EvictorMetrics) -> None:
        super().__init__()
        path = f"/api/v1/namespaces/{quote(name, safe='')}/pods"
        self.watch = ListWatch(api, Resource("pods", path, GroupedPod), self, self)
        self.task: asyncio.Task[NoReturn] | None = None
        self.asked_at = 0.0
        self.news = asyncio.Event()
        self._metrics = metrics
        self._unreadable = False  # a pod could not be read: it may be a member, so nothing is known any more

    @property
    def is_known(self) -> bool:
        """Whether all pods have been listed, and could be read."""
        return self.watch.synced.is_set() and not self._unreadable

    def members(self) -> Members:
        """Return all of them. O(pods)."""
        members: defaultdict[GroupKey, list[GroupMember]] = defaultdict(list)
        for key, member in self.by_uid.values():
            members[key].append(member)
        return members

    # What the list-watch hands on.

    def keep(self, item: GroupedPod) -> tuple[GroupKey, GroupMember] | None:
        """Return a pod's group and the pod; None where it has ended, or is of no group."""
        return member_of(item)

    def put(self, item: GroupedPod) -> None:
        """Take a pod, new or changed."""
        super().put(item)
        self.news.set()

    def drop(self, item: GroupedPod) -> None:
        """Forget a pod that was deleted."""
        super().drop(item)
        self.news.set()

    # What the list-watch reports.

    def listed(self, resource: str, reason: str) -> None:
        """Count nothing: but for the first, a list follows a watch that ended."""

    def reconnected(self, resource: str, reason: str) -> None:
        """Count a watch that ended."""
        self._metrics.watch_restarts.labels(resource=resource, reason=reason).inc()

    def undecodable(self, resource: str) -> None:
        """Know nothing any more; a list fails by that pod, and so keeps its unit."""
        self._unreadable = True
        self.reconnected(resource, "undecodable")


class FollowedMembers:
    """The namespaces that are followed; none before `run`."""

    def __init__(self, api: ObjectReader, metrics: EvictorMetrics) -> None:
        self._api = api
        self._metrics = metrics
        self._tasks: asyncio.TaskGroup | None = None
        self._namespaces: dict[str, _Namespace] = {}

    async def run(self) -> NoReturn:
        """Follow what is asked about, for as long as it is."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                self.forget_unused(time.monotonic())
        raise AssertionError  # the group ends by cancellation alone

    def forget_unused(self, now: float) -> None:
        """End the watches of namespaces that have not been asked about."""
        for name, one in list(self._namespaces.items()):
            if now - one.asked_at > UNUSED_SECONDS and one.task is not None:
                one.task.cancel()
                del self._namespaces[name]

    async def members(self, namespace: str, since: int) -> Members | None:
        """Return the members in a namespace with all changes up to version `since`; None: list them.

        0: as they are known. Waits for `PROOF_SECONDS` at most.
        """
        one = self._follow(namespace)
        if one is None or not one.is_known:
            return None
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                while one.watch.version < since:
                    one.news.clear()
                    await one.news.wait()
        except TimeoutError:
            return None
        return one.members() if one.is_known else None

    def _follow(self, name: str) -> _Namespace | None:
        one = self._namespaces.get(name)
        if one is None:
            if self._tasks is None or len(self._namespaces) >= MOST_FOLLOWED:
                return None
            one = self._namespaces[name] = _Namespace(self._api, name, self._metrics)
            one.task = self._tasks.create_task(one.watch.run())
        one.asked_at = time.monotonic()
        return one
