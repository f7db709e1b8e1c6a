"""Deletes that the API server refuses for good: a real ValidatingAdmissionPolicy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from integration.space import Space
from integration.waiting import NotYet, until
from makeway.runtime.kube import ApiError

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_LABEL = "tests.makeway.dev/undeletable"
UNDELETABLE = (_LABEL, "true")
"""Label and value of pods whose deletes are refused within `deletes_refused`."""


@asynccontextmanager
async def deletes_refused(space: Space, witness: str) -> AsyncIterator[None]:
    """Refuse every delete of the space's pods that have the label UNDELETABLE, for the length of a block.

    `witness` names such a pod; a dry run on it tells when the policy is in force, and when no more.
    """
    name = f"undeletable-{space.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": space.namespace}}
    await space.post(
        f"{_ADMISSION}/validatingadmissionpolicies",
        {
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": namespace},
                "validations": [
                    {
                        "expression": f"!('{_LABEL}' in oldObject.metadata.?labels.orValue({{}}))",
                        "message": "this pod may not be deleted",
                        "reason": "Forbidden",
                    }
                ],
            },
        },
    )
    await space.post(
        f"{_ADMISSION}/validatingadmissionpolicybindings",
        {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}},
    )
    await _until_refused(space, witness, True)
    try:
        yield
    finally:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await space.api.request("DELETE", f"{_ADMISSION}/{kind}/{name}")
        await _until_refused(space, witness, False)


async def _until_refused(space: Space, pod: str, wanted: bool) -> None:
    path = f"/api/v1/namespaces/{space.namespace}/pods/{pod}"

    async def ask() -> bool:
        refused = False
        try:
            await space.api.request("DELETE", path, query={"dryRun": "All"})
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            refused = error.status == 403
        if refused != wanted:
            raise NotYet("refused" if refused else "not refused")
        return True

    await until("the admission policy is in force" if wanted else "the admission policy is gone", ask)
