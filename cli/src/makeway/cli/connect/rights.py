"""What the API server lets users do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from makeway.runtime.kube import Api


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def may(api: Api, who: Mapping[str, Any] | None = None, /, **attributes: str) -> bool:
    """Ask whether someone, or who asks where that is not said, may do something.

    `who`: user, groups and the like, and `attributes` of the resource, as a SubjectAccessReview has them.
    Raises ApiError, ApiUnavailable.
    """
    reviews = api.authorization
    kind = "SubjectAccessReview" if who else "SelfSubjectAccessReview"
    create = reviews.create_subject_access_review if who else reviews.create_self_subject_access_review
    spec = {**(who or {}), "resourceAttributes": attributes}
    answer = await api.call(create, {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    return msgspec.json.decode(answer, type=_Review).status.allowed


async def may_pods(api: Api, verb: str, namespace: str = "") -> bool:
    """Ask whether who asks may do something to pods of a namespace; of all, where none is named.

    Raises as `may`.
    """
    return await may(api, verb=verb, resource="pods", namespace=namespace)
