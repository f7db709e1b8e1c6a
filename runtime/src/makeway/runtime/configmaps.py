"""One ConfigMap by its name: read from the API server's storage, or followed."""

from __future__ import annotations

from typing import Final

import msgspec

from makeway.core.k8s.objects import ConfigMap
from makeway.runtime.kube import Requests, read_object
from makeway.runtime.listwatch import Resource

_READ_SECONDS: Final = 5.0

_decode = msgspec.json.Decoder(ConfigMap).decode


async def read_configmap(api: Requests, namespace: str, name: str) -> ConfigMap | None:
    """Return a ConfigMap; None where there is none. Raises ApiError, ApiUnavailable, msgspec.DecodeError."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    body = await read_object(api, path, timeout_seconds=_READ_SECONDS)
    return None if body is None else _decode(body)


def configmap_of(namespace: str, name: str) -> Resource[ConfigMap]:
    """Return what a list-watch of one ConfigMap follows."""
    path, selector = f"/api/v1/namespaces/{namespace}/configmaps", f"metadata.name={name}"
    return Resource(f"configmaps/{name}", path, ConfigMap, field_selector=selector)
