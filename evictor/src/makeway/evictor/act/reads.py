"""What is read of the API server for one order: pods, nodes, and what pods belong to. Nothing is judged."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import structlog
from msgspec.structs import replace

from makeway.bus.messages import Placement, Victim
from makeway.core.k8s.daemonset_owner import DaemonSetOwner, claimed_daemonset
from makeway.core.k8s.objects import Node, Pod, PriorityClass
from makeway.core.k8s.pod_groups import MOST_LEVELS, GroupKey, GroupRecord
from makeway.core.policy.preemption import asks_for_namespaces, namespace_labels
from makeway.core.policy.toleration_record import NO_RECORD
from makeway.evictor.act.work import OrderWork
from makeway.evictor.judge.groups import key_of
from makeway.evictor.limits.slots import AT_ONCE
from makeway.evictor.retry import PermanentError, TemporaryError
from makeway.runtime.pod_group_api import PodGroupApi

LISTED: Final = 4
"""So many victims of one namespace on one node are read by a list of its pods there, of at most so many times
as many; so many members by a list of those without a node."""

LISTED_BYTES: Final = 32 * 1024
"""How long such a list may be for each pod that it is for: what others put on the node decides neither how
long it takes nor how large it is."""

_log = structlog.get_logger()


class Reads:
    """One order's. What was read last stays, for the judges."""

    def __init__(self, work: OrderWork) -> None:
        self.classes: dict[str, PriorityClass] = {}
        self.record = NO_RECORD
        """What is on record of PriorityClasses that are gone."""
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """The labels of namespaces, where rules of who may preempt whom ask for them."""
        self.daemonsets: dict[tuple[str, str], DaemonSetOwner | None] = {}
        self.groups: dict[GroupKey, GroupRecord | None] = {}
        self.group_api = PodGroupApi()
        self._work = work
        self._cluster = work.parts.cluster
        self._class_names = frozenset[str]()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._unlisted = set[tuple[str, str]]()  # namespaces and nodes

    # ---------------------------------------------------------------------------------------- pods

    async def victim(self, victim: Victim) -> Pod | None:
        """Read a victim's pod, and what it claims to belong to."""
        pod = await self._pod(victim)
        if pod is not None:
            await self.owners([pod])
        return pod

    async def victims(self, victims: Sequence[Victim]) -> list[Pod | None]:
        """Read victims: for a barrier many of one node together, and by itself what no list has."""
        by_place: defaultdict[tuple[str, str], list[Victim]] = defaultdict(list)
        for victim in victims:
            by_place[victim.namespace, victim.node].append(victim)
        lists = await asyncio.gather(
            *(
                self._list(place, len(wanted))
                for place, wanted in by_place.items()
                if self._is_listed(place, len(wanted))
            )
        )
        listed = {pod.metadata.uid: pod for pods in lists for pod in pods}
        found = {victim.uid: pod for victim in victims if (pod := listed.get(victim.uid))}
        others = [victim for victim in victims if victim.uid not in found]
        _, read = await asyncio.gather(
            self.owners(found.values()), asyncio.gather(*(self.victim(victim) for victim in others))
        )
        pods = found | {victim.uid: pod for victim, pod in zip(others, read, strict=True)}
        return [pods[victim.uid] for victim in victims]

    async def members(self, namespace: str) -> dict[str, Pod | None]:
        """Read the members, by UID: those that wait by one list where they are many, as victims of a node."""
        members = self._work.order.members
        place = namespace, ""
        waiting = await self._list(place, len(members)) if self._is_listed(place, len(members)) else ()
        found: dict[str, Pod | None] = {pod.metadata.uid: pod for pod in waiting}
        others = [member for member in members if member.uid not in found]
        pods = await asyncio.gather(*(self._pod(member) for member in others))
        return found | {member.uid: pod for member, pod in zip(others, pods, strict=True)}

    async def nodes(self, names: Sequence[str]) -> dict[str, Node | None]:
        """Read nodes, by name."""
        return dict(zip(names, await asyncio.gather(*(self._node(name) for name in names)), strict=True))

    async def _pod(self, one: Victim | Placement) -> Pod | None:
        async with self._places:
            return await self._cluster.get_pod(one.namespace, one.name)

    async def _node(self, name: str) -> Node | None:
        async with self._places:
            return await self._cluster.get_node(name)

    def _is_listed(self, place: tuple[str, str], wanted: int) -> bool:
        return self._work.terms.barrier and wanted >= LISTED and place not in self._unlisted

    async def _list(self, place: tuple[str, str], wanted: int) -> Sequence[Pod]:
        """Read pods of a namespace on a node; none where that fails, and then not again for this order."""
        try:
            async with self._places:
                return await self._cluster.pods_on(*place, LISTED * wanted, LISTED_BYTES * wanted)
        except TemporaryError as error:
            self._unlisted.add(place)
            _log.warning("node_pods_not_listed", namespace=place[0], node=place[1], error=str(error))
            return ()

    # ------------------------------------------------------------------------- what pods belong to

    async def owners(self, pods: Iterable[Pod]) -> None:
        """Read the DaemonSets that pods claim, and their groups, but where the rest of a unit goes anyway."""
        found = tuple(pods)
        await asyncio.gather(*(self.daemonset(pod) for pod in found))
        groups = {key for pod in found if (key := key_of(pod)) is not None}
        if groups and not self._work.is_finishing:
            await self.groups_of(groups)

    async def daemonset(self, pod: Pod) -> None:
        """Read the DaemonSet that a pod claims, which alone can prove it.

        Where it may not be read nothing is proven: the claim keeps a victim, and privileges no preemptor.
        """
        claim = claimed_daemonset(pod.metadata)
        parts = self._work.parts
        by_queues = self._work.terms.judged_by == "queues" or parts.queue_guard.reclaims()
        if claim is None or not (by_queues or parts.mode_guard.policy.daemon_sets.enabled):
            return
        namespace, key = pod.metadata.namespace, (pod.metadata.namespace, claim.name)
        try:
            self.daemonsets[key] = await self._cluster.get_daemonset(namespace, claim.name)
        except PermanentError as error:
            self.daemonsets.pop(key, None)
            _log.warning("daemonset_unreadable", namespace=namespace, daemonset=claim.name, error=str(error))

    async def groups_of(self, keys: Iterable[GroupKey]) -> None:
        """Read PodGroups and their parents; nothing where the API server serves none."""
        self.group_api = await self._cluster.pod_group_api()
        if not self.group_api.version:
            return
        left = set(keys)
        for _ in range(MOST_LEVELS):
            found = await asyncio.gather(*(self._group(key) for key in sorted(left)))
            records = [one for one in found if one is not None and one.parent]
            left = {GroupKey(one.key.namespace, one.parent, composite=True) for one in records}

    async def _group(self, key: GroupKey) -> GroupRecord | None:
        async with self._places:
            record = await self._cluster.get_pod_group(self.group_api, key)
        if record is not None and not self.group_api.composites:
            record = replace(record, parent="")
        self.groups[key] = record
        return record

    async def labels_of(self, namespaces: Iterable[str]) -> None:
        """Read the labels of namespaces, where rules of who may preempt whom ask for them, each once."""
        if not asks_for_namespaces(self._work.parts.mode_guard.policy.preemption.table):
            return
        names = sorted(set(namespaces))
        found = await asyncio.gather(*(self._cluster.get_namespace(name) for name in names))
        for name, one in zip(names, found, strict=True):
            self.namespaces[name] = namespace_labels(name, None if one is None else one.metadata.labels)

    async def priority_classes(self, names: Iterable[str] | None = None) -> None:
        """Read the victims' PriorityClasses, each once: whether a pod is exempt is the class's to say.

        With the labels of their namespaces, where rules ask for them.
        `names`: which they are from here on; those of before where it is None.
        """
        self._class_names = self._class_names if names is None else frozenset(names) - {""}
        wanted = sorted(self._class_names)
        await self.labels_of(victim.namespace for victim in self._work.order.victims)
        found = await asyncio.gather(*(self._cluster.get_priority_class(name) for name in wanted))
        self.classes = {name: one for name, one in zip(wanted, found, strict=True) if one is not None}
        gone = len(self.classes) < len(wanted)
        self.record = await self._cluster.read_tolerations() if gone else NO_RECORD
