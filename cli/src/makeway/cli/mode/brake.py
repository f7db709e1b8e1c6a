"""The brake and its ConfigMap, as `makeway mode` and others read and write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus

import msgspec

from makeway.cli.connect.configmaps import StoredMap, change_map, read_map
from makeway.core.policy.brake import CONFIGMAP, RELEASED, Brake, data_of, parse_brake
from makeway.runtime.kube import Api, ApiError


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
    return str(msgspec.json.decode(answer)["status"]["userInfo"].get("username", ""))


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


def set_for(before: Brake, namespace: str, *, since: str, by: str, reason: str) -> Brake:
    """Return the brake set everywhere, or for one more namespace; unchanged where it holds there already.

    A wider brake is never narrowed by setting it for a namespace.
    """
    if before.everywhere and before.trouble and not namespace:
        before = RELEASED  # written anew, so that it can be understood
    if before.holds(namespace):
        return before
    names = frozenset({*before.namespaces, namespace}) if namespace else frozenset[str]()
    return Brake(everywhere=not namespace, namespaces=names, since=since, by=by, reason=reason)


def released(before: Brake, namespace: str) -> Brake:
    """Return the brake released, or released for one namespace.

    Raises:
        ValueError: it is set everywhere, so that no single namespace can be released.
    """
    if not namespace:
        return RELEASED
    if before.everywhere:
        raise ValueError(
            f"{before.describe()}, so it cannot be released for namespace {namespace} alone: "
            "`makeway mode --release` releases it everywhere"
        )
    left = before.namespaces - {namespace}
    return replace(before, namespaces=left) if left else RELEASED
