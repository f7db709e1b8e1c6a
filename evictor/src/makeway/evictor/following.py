"""Following the pods of namespaces from which units go, so that not every order lists them.

A list of 10,000 pods takes a second, and orders that share a unit go one after another. So the first order
that has a unit of a namespace lists its pods, and those after it ask a watch. A watch may be behind, or hear
nothing. What an order rests on is proven: its own marks have come by. Of one resource a later change has a
higher version (KEP-5504, promised since Kubernetes 1.35), and a watch leaves none out.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, NoReturn
from urllib.parse import quote

from makeway.core.k8s.pod_groups import GroupKey
from makeway.evictor.members import GroupedPod, Member, Members, member_of
from makeway.evictor.metrics import EvictorMetrics
from makeway.runtime.listwatch import ListWatch, ObjectReader, Resource

MOST_FOLLOWED: Final = 16
"""Namespaces that are followed at the same time; of others each order lists the pods."""

UNUSED_SECONDS: Final = 600.0
"""A namespace that no order has asked about for so long is not followed any more."""

PROOF_SECONDS: Final = 1.0
"""How long a watch may take to bring a change that was made before. Then the pods are listed."""

_LOOK_SECONDS: Final = 60.0


@dataclass
class _Followed:
    """The members in one namespace, as a watch has them, and what became of the watch."""

    metrics: EvictorMetrics
    unreadable: bool = False
    """A pod could not be read: it may be a member, so from then on nothing is known here."""
    groups: dict[GroupKey, dict[str, Member]] = field(default_factory=dict)
    keys: dict[str, GroupKey] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, item: GroupedPod) -> None:
        """Take a pod, new or changed; one that has ended, or is of no group, is forgotten."""
        self.drop(item)
        if (found := member_of(item)) is not None:
            key, member = found
            self.keys[member.uid] = key
            self.groups.setdefault(key, {})[member.uid] = member

    def drop(self, item: GroupedPod) -> None:
        """Forget a pod that was deleted."""
        self._forget(item.metadata.uid)
        self.news.set()

    def retain(self, uids: set[str]) -> None:
        """Forget all pods but these."""
        for uid in self.keys.keys() - uids:
            self._forget(uid)

    def members(self) -> Members:
        """Return all of them. O(pods)."""
        return {key: tuple(found.values()) for key, found in self.groups.items()}

    def listed(self, resource: str, reason: str) -> None:
        """Count nothing: as many lists as watches that could not go on, and the first."""

    def reconnected(self, resource: str, reason: str) -> None:
        """Count a watch that ended."""
        self.metrics.watch_restarts.labels(resource=resource, reason=reason).inc()

    def undecodable(self, resource: str) -> None:
        """Know nothing any more; a list says which pod, and keeps its unit."""
        self.unreadable = True
        self.reconnected(resource, "undecodable")

    def _forget(self, uid: str) -> None:
        if (key := self.keys.pop(uid, None)) is None:
            return
        del self.groups[key][uid]
        if not self.groups[key]:
            del self.groups[key]


@dataclass
class _Following:
    followed: _Followed
    watch: ListWatch[GroupedPod]
    task: asyncio.Task[NoReturn]
    asked_at: float = 0.0


class FollowedMembers:
    """The namespaces that are followed; none before `run`."""

    def __init__(self, api: ObjectReader, metrics: EvictorMetrics) -> None:
        self._api = api
        self._metrics = metrics
        self._tasks: asyncio.TaskGroup | None = None
        self._namespaces: dict[str, _Following] = {}

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
        for namespace, one in list(self._namespaces.items()):
            if now - one.asked_at > UNUSED_SECONDS:
                one.task.cancel()
                del self._namespaces[namespace]

    async def members(self, namespace: str, since: int) -> Members | None:
        """Return the members in a namespace with all changes up to version `since`; None: list them.

        0: as they are known. Waits for `PROOF_SECONDS` at most.
        """
        one = self._follow(namespace)
        if one is None or not one.watch.synced.is_set() or one.followed.unreadable:
            return None
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                while one.watch.version < since:
                    one.followed.news.clear()
                    await one.followed.news.wait()
        except TimeoutError:
            return None
        return None if one.followed.unreadable else one.followed.members()

    def _follow(self, namespace: str) -> _Following | None:
        one = self._namespaces.get(namespace)
        if one is None:
            if self._tasks is None or len(self._namespaces) >= MOST_FOLLOWED:
                return None
            followed = _Followed(self._metrics)
            path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
            watch = ListWatch(self._api, Resource("pods", path, GroupedPod), followed, followed)
            one = _Following(followed, watch, self._tasks.create_task(watch.run()))
            self._namespaces[namespace] = one
        one.asked_at = time.monotonic()
        return one
