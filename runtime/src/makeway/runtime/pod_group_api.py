"""Which pod groups the API server serves: asked of discovery, which everyone may read."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from makeway.core.k8s.pod_groups import COMPOSITE_ALPHA, GROUP, POD_GROUP_VERSIONS, GroupKey
from makeway.runtime.kube import ApiUnavailable, Requests, read_object

POD_GROUPS = "podgroups"
COMPOSITES = "compositepodgroups"


@dataclass(frozen=True, slots=True)
class PodGroupApi:
    """What is served: the versions of PodGroup and CompositePodGroup, empty where none is read."""

    version: str = ""
    composites: str = ""

    def path(self, key: GroupKey | None = None, *, composite: bool = False) -> str:
        """Return the path of one group, or of all of one kind."""
        composite = composite or (key is not None and key.composite)
        version, plural = (self.composites, COMPOSITES) if composite else (self.version, POD_GROUPS)
        within = "" if key is None else f"/namespaces/{quote(key.namespace, safe='')}"
        name = "" if key is None else f"/{quote(key.name, safe='')}"
        return f"/apis/{GROUP}/{version}{within}/{plural}{name}"


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: tuple[_Resource, ...] = ()


_decode = msgspec.json.Decoder(_Resources).decode


async def pod_group_api(api: Requests) -> PodGroupApi:
    """Ask which groups are served. Raises ApiError, ApiUnavailable."""
    for version in POD_GROUP_VERSIONS:
        if POD_GROUPS in (served := await served_resources(api, GROUP, version)):
            if COMPOSITES in served:
                return PodGroupApi(version, version)
            alpha = await served_resources(api, GROUP, COMPOSITE_ALPHA)
            return PodGroupApi(version, COMPOSITE_ALPHA if COMPOSITES in alpha else "")
    return PodGroupApi()


async def served_resources(api: Requests, group: str, version: str) -> frozenset[str]:
    """Ask which resources of an API are served: none where it is not. Raises ApiError, ApiUnavailable."""
    if (body := await read_object(api, f"/apis/{group}/{version}")) is None:
        return frozenset()
    try:
        return frozenset(one.name for one in _decode(body).resources)
    except msgspec.DecodeError as error:
        raise ApiUnavailable(f"unreadable discovery of {group}/{version}: {error}") from error
