"""One ConfigMap by its name: read from the API server's storage, or followed."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from makeway.core.k8s.objects import ConfigMap
from makeway.runtime.kube import ApiError, Requests
from makeway.runtime.listwatch import Resource

_READ_SECONDS: Final = 5.0

_decode = msgspec.json.Decoder(ConfigMap).decode


async def read_configmap(api: Requests, namespace: str, name: str) -> ConfigMap | None:
    """Return a ConfigMap; None where there is none. Raises ApiError, ApiUnavailable, msgspec.DecodeError."""
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    try:
        return _decode(await api.request("GET", path, timeout_seconds=_READ_SECONDS))
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


def configmap_of(namespace: str, name: str) -> Resource[ConfigMap]:
    """Return what a list-watch of one ConfigMap follows."""
    path, selector = f"/api/v1/namespaces/{namespace}/configmaps", f"metadata.name={name}"
    return Resource(f"configmaps/{name}", path, ConfigMap, field_selector=selector)
