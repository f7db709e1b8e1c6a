"""A cluster read once from its API server, by the same lists as the planner's own."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, TypeVar

import msgspec

from makeway.core.k8s.objects import ConfigMap
from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.core.policy.toleration_record import CONFIGMAP
from makeway.planner.offline.configuring import POLICY_KEY, QUEUES_KEY, take, take_tolerations
from makeway.planner.offline.world import World
from makeway.planner.service.watch import (
    BUDGETS,
    CLAIMS,
    DAEMON_SETS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
    VOLUMES,
)
from makeway.planner.snapshot.changes import PutTolerationRecord
from makeway.runtime.kube import Api, ApiError
from makeway.runtime.listwatch import ListWatch, MetadataObject, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, pod_group_api
from makeway.runtime.settings import ConfigSettings

RESOURCES: tuple[Resource[Any], ...] = (NAMESPACES, NODES, PRIORITY_CLASSES, BUDGETS, CLAIMS, PODS)
OPTIONAL: tuple[Resource[Any], ...] = (VOLUMES, STORAGE_CLASSES, DEVICE_CLASSES, DAEMON_SETS)
"""What the caller need not be allowed to list."""

T = TypeVar("T", bound=MetadataObject)

_decode_configmap = msgspec.json.Decoder(ConfigMap).decode


class _WorldHandler(Generic[T]):
    """Puts the objects of a list into a world, and tells which could not be read."""

    def __init__(self, world: World) -> None:
        self._world = world

    def put(self, item: T) -> None:
        """Take it."""
        self._world.put(item)

    def drop(self, item: T) -> None:
        """Not called: nothing is watched."""

    def retain(self, uids: set[str]) -> None:
        """Forget nothing: there was nothing before."""

    def listed(self, resource: str, reason: str) -> None:
        """Not counted."""

    def reconnected(self, resource: str, reason: str) -> None:
        """Not called: nothing is watched."""

    def undecodable(self, resource: str) -> None:
        """Tell that an object is missing."""
        self._world.warnings.append(f"one of the {resource} cannot be read and is left out")


async def read_world(api: Api, settings: ConfigSettings, *, configuration: bool = True) -> World:
    """List everything that a plan looks at.

    `configuration`: also the ConfigMaps of policy and queues.

    Raises ApiError (403: the caller may not list something), ApiUnavailable.
    """
    world = World()
    served, *_ = await asyncio.gather(
        _groups(api, world),
        *(_listed(api, resource, world) for resource in RESOURCES),
        *(_listed_if_allowed(api, resource, world, "they rule no node out") for resource in OPTIONAL),
    )
    if not served:
        world.forget_groups()
    await _tolerations(api, world, settings.namespace)
    if configuration:
        for key, name in ((POLICY_KEY, settings.policy_configmap), (QUEUES_KEY, settings.queues_configmap)):
            await _configured(api, world, settings.namespace, name, key)
    return world


async def _listed(api: Api, resource: Resource[Any], world: World) -> None:
    into: _WorldHandler[Any] = _WorldHandler(world)
    await ListWatch(api, resource, into, into).list_once()


async def _listed_if_allowed(api: Api, resource: Resource[Any], world: World, so: str) -> None:
    try:
        await _listed(api, resource, world)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        world.warnings.append(f"{resource.name} cannot be listed, so {so}: {error}")


async def _groups(api: Api, world: World) -> bool:
    """List pod groups; report whether they are served. Pods that name one stay where it may not be read."""
    served = await pod_group_api(api)
    if not served.version:
        return False
    kinds: list[tuple[str, bool, type[PodGroup]]] = [(POD_GROUPS, False, PodGroup)]
    if served.composites:
        kinds.append((COMPOSITES, True, CompositePodGroup))
    for name, composite, kind in kinds:
        resource = Resource(name, served.path(composite=composite), kind)
        try:
            await _listed(api, resource, world)
        except ApiError as error:
            if error.status != 403:
                raise
            world.warnings.append(f"{name} cannot be listed, so pods of groups stay: {error}")
    return True


async def _tolerations(api: Api, world: World, namespace: str) -> None:
    where = f"ConfigMap {namespace}/{CONFIGMAP}"
    try:
        body = await api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}")
    except ApiError as error:
        if error.status == 403:
            world.snapshot.apply(PutTolerationRecord(None))
            world.warnings.append(f"{where}: {error}, so pods whose PriorityClass is gone stay")
        elif error.status != 404:
            raise
        return
    take_tolerations(world, _decode_configmap(body).data, where)


async def _configured(api: Api, world: World, namespace: str, name: str, key: str) -> None:
    if not name:
        return
    try:
        body = await api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    except ApiError as error:
        if error.status == 404:
            return
        raise
    data = _decode_configmap(body).data or {}
    take(world, key, data.get(key), ("ConfigMap", namespace, name))
