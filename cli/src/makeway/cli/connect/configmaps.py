"""The one way in which commands change a ConfigMap: read it, edit its data, and write at that version."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from makeway.runtime.kube import APPLY, MERGE_PATCH, Api, ApiError, read_object

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


@dataclass(frozen=True)
class StoredMap:
    """A ConfigMap as it is stored. version: empty where there is none. since: when it was last written."""

    data: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    since: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    immutable: bool = False


async def read_map(api: Api, namespace: str, name: str) -> StoredMap:
    """Read it. Raises ApiError, ApiUnavailable."""
    body = await read_object(api, f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    if body is None:
        return StoredMap()
    stored: dict[str, Any] = msgspec.json.decode(body)
    meta = stored["metadata"]
    written = [one.get("time", "") for one in meta.get("managedFields") or ()]
    return StoredMap(
        stored.get("data") or {},
        meta.get("resourceVersion", ""),
        max((meta.get("creationTimestamp", ""), *written)),
        meta.get("labels") or {},
        meta.get("annotations") or {},
        bool(stored.get("immutable")),
    )


async def change_map(
    api: Api, namespace: str, name: str, edit: Callable[[StoredMap], Mapping[str, str]]
) -> bool:
    """Store what `edit` makes of the data, empty for no ConfigMap; report whether it is another than before.

    Where another writes meanwhile, what they wrote is edited. Keys that stay as they were are not touched.

    Raises:
        ApiError, ApiUnavailable: it was not stored, or that is not known.
        ValueError: what `edit` raises; or the namespace does not exist.
    """
    for left in reversed(range(_TRIES)):
        before = await read_map(api, namespace, name)
        data = edit(before)
        if data == before.data:
            return False
        try:
            await _write(api, namespace, name, before, data)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT or not left:
                raise
        else:
            return True
    raise AssertionError("every try returns or raises")


async def _write(api: Api, namespace: str, name: str, before: StoredMap, data: Mapping[str, str]) -> None:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    patch = api.core.patch_namespaced_config_map
    if not data:
        options = {"kind": "DeleteOptions", "preconditions": {"resourceVersion": before.version}}
        body = {"apiVersion": "v1", **options}
        try:
            await api.call(api.core.delete_namespaced_config_map, name, namespace, body=body)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
    elif before.version:
        gone: dict[str, str | None] = {key: None for key in before.data if key not in data}
        changed = {key: text for key, text in data.items() if before.data.get(key) != text}
        merged = {"metadata": {"resourceVersion": before.version}, "data": {**gone, **changed}}
        await api.call(patch, name, namespace, merged, _content_type=MERGE_PATCH)
    else:
        # Applied by name, so that rights to this one name suffice. By a manager of its own, so that one that
        # was created meanwhile, with other values, is a conflict (409) and is read again.
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        by = {"field_manager": f"makeway-{secrets.token_hex(4)}", "force": "false"}
        try:
            await api.call(patch, name, namespace, made, _content_type=APPLY, **by)  # type: ignore[arg-type]
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise ValueError(f"there is no namespace {namespace}; give --makeway-namespace") from error
            raise


def manager_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return who would put its own text back; empty where none would. Pure.

    Helm does not: the chart takes over what it finds, unless its values have it manage the policy.
    """
    for key, name in _MANAGERS.items():
        found = annotations.get(key) or labels.get(key)
        if found:
            return name or found
    return ""
