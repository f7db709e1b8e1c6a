"""The admission policies: whether the API server holds makeway's tokens to what they are for."""

from __future__ import annotations

import json
from typing import Final

from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import read_object
from makeway.runtime.kube import Api

CONFIGMAP: Final = "makeway-admission"

_NAME: Final = "admission policies"
_POLICY: Final = "makeway-evictor-delete"
_GROUP: Final = "/apis/admissionregistration.k8s.io/v1"


async def admission_result(api: Api, namespace: str) -> CheckResult:
    """Look at the policy that bounds the evictor's deletes, its binding, and the ConfigMap that it reads.

    Raises:
        ApiError, ApiUnavailable: the API server did not answer.
    """
    remedy = "helm upgrade with admissionPolicies.enabled=true"
    if await read_object(api, f"{_GROUP}/validatingadmissionpolicies/{_POLICY}") is None:
        detail = "none: whoever has the evictor's token may delete any pod"
        return CheckResult(_NAME, "warning", detail, f"{remedy}, on Kubernetes 1.30 or newer")
    binding = await read_object(api, f"{_GROUP}/validatingadmissionpolicybindings/{_POLICY}")
    if binding is None or "Deny" not in json.loads(binding)["spec"].get("validationActions", ()):
        return CheckResult(_NAME, "wrong", f"{_POLICY} is not bound with action Deny", remedy)
    if await read_object(api, f"/api/v1/namespaces/{namespace}/configmaps/{CONFIGMAP}") is None:
        detail = f"ConfigMap {namespace}/{CONFIGMAP} is missing: the API server refuses every delete"
        return CheckResult(_NAME, "wrong", detail, remedy)
    return CheckResult(_NAME, "ok", "the API server holds evictor and scheduler to them")
