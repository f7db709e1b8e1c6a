"""The ConfigMap of the brake, as `makeway mode` and `makeway check` read and write it."""

from __future__ import annotations

import getpass
import secrets
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from makeway.core.k8s.objects import ConfigMap
from makeway.core.policy.brake import CONFIGMAP, RELEASED, Brake, data_of, parse_brake
from makeway.runtime.kube import APPLY, Api, ApiError

_TRIES: Final = 5
_MANAGER: Final = "makeway-mode"


class _User(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def stored_brake(api: Api, namespace: str) -> Brake:
    """Read it; RELEASED where there is none. Raises ApiError, ApiUnavailable."""
    return (await _read(api, namespace))[0]


async def set_brake(api: Api, namespace: str, edit: Callable[[Brake], Brake]) -> tuple[Brake, bool]:
    """Store what `edit` makes of the brake; return it, and whether it is another than before.

    One that is not engaged is deleted. It is applied by name, so that the rights to create, patch and delete
    this one name suffice; whatever else wrote its keys before loses them. Where another manager writes
    meanwhile, what they wrote is edited.

    Raises:
        ApiError, ApiUnavailable: it was not stored, or that is not known.
        ValueError: what `edit` raises; or makeway's namespace does not exist.
    """
    for left in reversed(range(_TRIES)):
        before, version = await _read(api, namespace)
        brake = edit(before)
        if brake == before:
            return brake, False
        try:
            if brake.engaged:
                await _apply(api, namespace, brake, version)
            else:
                await _delete(api, namespace, version)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT or not left:
                raise
        else:
            return brake, True
    raise AssertionError("every try returns or raises")


async def whoami(api: Api) -> str:
    """Return the name by which the API server knows us; else that of this machine's user."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await api.call(api.authentication.create_self_subject_review, body)
        username = msgspec.json.decode(answer, type=_Review).status.user_info.username
    except (ApiError, msgspec.DecodeError):
        username = ""
    if username:
        return username
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # no such user on this machine
        return socket.gethostname()


async def brake_seen(api: Api, namespace: str) -> Brake | None:
    """Return the brake in makeway's namespace; None for a user who may not read it.

    Raises ApiError, ApiUnavailable.
    """
    try:
        return (await _read(api, namespace))[0]
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return None
        raise


async def _read(api: Api, namespace: str) -> tuple[Brake, str]:
    """The brake and its version, empty where there is none."""
    try:
        body = await api.request("GET", _path(namespace))
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return RELEASED, ""
        raise
    found = msgspec.json.decode(body, type=ConfigMap)
    return parse_brake(found.data or {}), found.metadata.resource_version


async def _apply(api: Api, namespace: str, brake: Brake, version: str) -> None:
    metadata = {"name": CONFIGMAP, "namespace": namespace}
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, **({"resourceVersion": version} if version else {})},
        "data": data_of(brake),
    }
    try:
        write, by = api.core.patch_namespaced_config_map, _as(version)
        await api.call(write, CONFIGMAP, namespace, manifest, _content_type=APPLY, **by)  # type: ignore[arg-type]
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise ValueError(f"there is no namespace {namespace}; give --makeway-namespace") from error
        raise


def _as(version: str) -> dict[str, str]:
    """Return by whom to apply.

    Over a version that was read, by force. A new brake as a manager of its own, so that one that was created
    meanwhile, with other values, is a conflict (409) and is read again: the same manager, or force, would
    overwrite it, and a brake set everywhere could end as one for a namespace.
    """
    if version:
        return {"field_manager": _MANAGER, "force": "true"}
    return {"field_manager": f"{_MANAGER}-{secrets.token_hex(4)}", "force": "false"}


async def _delete(api: Api, namespace: str, version: str) -> None:
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"resourceVersion": version},
    }
    try:
        await api.call(api.core.delete_namespaced_config_map, CONFIGMAP, namespace, body=options)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}"
