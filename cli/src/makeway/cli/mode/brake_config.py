"""The ConfigMap of the brake, as `makeway mode` and `makeway check` read and write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec

from makeway.cli.connect.configmaps import StoredMap, change_map, read_map
from makeway.core.policy.brake import CONFIGMAP, RELEASED, Brake, data_of, parse_brake
from makeway.runtime.kube import Api, ApiError


class _User(msgspec.Struct):
    username: str = ""


class _ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


async def stored_brake(api: Api, namespace: str) -> Brake:
    """Read it; RELEASED where there is none. Raises ApiError, ApiUnavailable."""
    return _brake_of(await read_map(api, namespace, CONFIGMAP))


async def set_brake(api: Api, namespace: str, edit: Callable[[Brake], Brake]) -> tuple[Brake, bool]:
    """Store what `edit` makes of the brake; return it, and whether it is another than before.

    One that is not engaged is deleted. Raises as `change_map`.
    """
    after = RELEASED

    def edited(found: StoredMap) -> Mapping[str, str]:
        nonlocal after
        before = _brake_of(found)
        after = edit(before)
        if after == before:
            return found.data
        return data_of(after) if after.engaged else {}

    changed = await change_map(api, namespace, CONFIGMAP, edited)
    return after, changed


async def whoami(api: Api) -> str:
    """Return the name by which the API server knows us; empty where it does not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await api.call(api.authentication.create_self_subject_review, body)
    except ApiError:
        return ""
    return msgspec.json.decode(answer, type=_Review).status.user_info.username


async def brake_seen(api: Api, namespace: str) -> Brake | None:
    """Return the brake in makeway's namespace; None for a user who may not read it.

    Raises ApiError, ApiUnavailable.
    """
    try:
        return await stored_brake(api, namespace)
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return None
        raise


def _brake_of(found: StoredMap) -> Brake:
    return parse_brake(found.data) if found.version else RELEASED
