"""The ConfigMap that holds the policy, as `makeway mode` reads and writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import msgspec

from makeway.core.policy.document import KEY
from makeway.runtime.kube import MERGE_PATCH, Api, ApiError

CONFIGMAP: Final = "makeway-policy"

_TRIES: Final = 5

_MANAGERS: Final[Mapping[str, str]] = {
    "makeway.dev/managed-by": "",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "config.k8s.io/owning-inventory": "a GitOps inventory",
}
"""Labels and annotations of what would put its own text back, and its name."""


class _Written(msgspec.Struct):
    time: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    creation_timestamp: str = ""
    managed_fields: list[_Written] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: dict[str, str] | None = None
    immutable: bool | None = None


@dataclass(frozen=True)
class StoredPolicy:
    """The policy's text as it is stored; None where there is none.

    `manager`: what else writes it. `since`: when its ConfigMap was last written, empty where not known.
    """

    text: str | None
    version: str = ""
    manager: str = ""
    immutable: bool = False
    keys: tuple[str, ...] = field(default=())
    since: str = ""

    @property
    def exists(self) -> bool:
        """Whether there is such a ConfigMap."""
        return bool(self.version)


def manager_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return who would put its own text back; empty where none would. Pure.

    Helm does not: the chart takes over what it finds, unless it is told to manage the policy.
    """
    for key, name in _MANAGERS.items():
        found = annotations.get(key) or labels.get(key)
        if found:
            return name or found
    return ""


async def stored(api: Api, namespace: str) -> StoredPolicy:
    """Read it. Raises ApiError, ApiUnavailable."""
    try:
        body = await api.request("GET", _path(namespace))
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return StoredPolicy(None)
        raise
    found = msgspec.json.decode(body, type=_ConfigMap)
    data, metadata = found.data or {}, found.metadata
    return StoredPolicy(
        text=data.get(KEY),
        version=metadata.resource_version,
        manager=manager_of(metadata.labels or {}, metadata.annotations or {}),
        immutable=bool(found.immutable),
        keys=tuple(sorted(data)),
        since=max([metadata.creation_timestamp, *(one.time for one in metadata.managed_fields or ())]),
    )


async def change(api: Api, namespace: str, edit: Callable[[StoredPolicy], str]) -> tuple[str, bool]:
    """Store what `edit` makes of what is stored; returns the text, and whether it is another than before.

    Where another writes meanwhile, what they wrote is edited. Only the one key is touched.

    Raises:
        ApiError, ApiUnavailable: it was not stored, or that is not known.
        ValueError: what `edit` raises.
    """
    for left in reversed(range(_TRIES)):
        before = await stored(api, namespace)
        text = edit(before)
        if text == before.text:
            return text, False
        try:
            await _write(api, namespace, before, text)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT or not left:
                raise
        else:
            return text, True
    raise AssertionError("every try returns or raises")


async def _write(api: Api, namespace: str, before: StoredPolicy, text: str) -> None:
    if before.exists:
        patch = {"metadata": {"resourceVersion": before.version}, "data": {KEY: text}}
        write = api.core.patch_namespaced_config_map
        await api.call(write, CONFIGMAP, namespace, patch, _content_type=MERGE_PATCH)
        return
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIGMAP, "namespace": namespace},
        "data": {KEY: text},
    }
    try:
        await api.call(api.core.create_namespaced_config_map, namespace, manifest)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise ValueError(f"there is no namespace {namespace}; give --makeway-namespace") from error
        raise


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}"
