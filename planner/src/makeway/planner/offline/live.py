"""A cluster read once from its API server, by the same lists as the planner's own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from makeway.core.k8s.pod_groups import CompositePodGroup, PodGroup
from makeway.core.policy.toleration_record import CONFIGMAP
from makeway.planner.offline.configuring import no_tolerations, take
from makeway.planner.offline.world import World
from makeway.planner.service.watch import NEEDED, OPTIONAL
from makeway.runtime.config_kinds import POLICY, QUEUES
from makeway.runtime.configmaps import read_configmap
from makeway.runtime.kube import Api, ApiError
from makeway.runtime.listwatch import ListWatch, Resource
from makeway.runtime.pod_group_api import COMPOSITES, POD_GROUPS, pod_group_api
from makeway.runtime.settings import ConfigSettings


class _WorldHandler:
    """Puts the objects of a list into a world, and tells which could not be read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.put = world.put

    def drop(self, item: Any) -> None:
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


async def read_world(api: Api, settings: ConfigSettings) -> World:
    """List everything that a plan looks at, and read the ConfigMaps of policy and queues.

    Raises ApiError (403: the caller may not list something), ApiUnavailable.
    """
    world = World()
    served, *_ = await asyncio.gather(
        _groups(api, world),
        *(_listed(api, resource, world) for resource in NEEDED),
        *(_listed(api, resource, world, "they rule no node out") for resource in OPTIONAL),
    )
    if not served:
        world.forget_groups()
    maps: dict[str, Mapping[str, str]] = {}
    for name in (POLICY.configmap, QUEUES.configmap, CONFIGMAP):
        try:
            found = await read_configmap(api, settings.namespace, name)
        except ApiError as error:
            if name != CONFIGMAP or error.status != 403:
                raise
            no_tolerations(world, settings.namespace, str(error))
        else:
            maps |= {name: found.data or {}} if found is not None else {}
    take(world, maps, settings.namespace)
    return world


async def _listed(api: Api, resource: Resource[Any], world: World, so: str = "") -> None:
    """List objects. `so`: what follows where they may not be; empty where they have to be."""
    into = _WorldHandler(world)
    try:
        await ListWatch(api, resource, into, into).list_once()
    except ApiError as error:
        if not so or error.status not in (403, 404):
            raise
        world.warnings.append(f"{resource.name} cannot be listed, so {so}: {error}")


async def _groups(api: Api, world: World) -> bool:
    """List pod groups; report whether they are served. Pods that name one stay where it may not be read."""
    served = await pod_group_api(api)
    if not served.version:
        return False
    for name, kind in ((POD_GROUPS, PodGroup), (COMPOSITES, CompositePodGroup)):
        composite = kind is CompositePodGroup
        if served.composites or not composite:
            resource = Resource(name, served.path(composite=composite), kind)
            await _listed(api, resource, world, "pods of groups stay")
    return True
