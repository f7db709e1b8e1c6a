"""What the API server lets the user do."""

from __future__ import annotations

import msgspec

from makeway.runtime.kube import Api


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def may_pods(api: Api, verb: str, namespace: str = "") -> bool:
    """Ask whether the user may do something to pods of a namespace; of all, where none is named.

    Raises ApiError, ApiUnavailable.
    """
    attributes = {"verb": verb, "resource": "pods", "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await api.call(api.authorization.create_self_subject_access_review, body)
    return msgspec.json.decode(answer, type=_Review).status.allowed
