"""Writes that the API server refuses for good: a real ValidatingAdmissionPolicy."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from integration.builders import make_pod
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.runtime.kube import ApiError

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_LABEL = "tests.makeway.dev/undeletable"
UNDELETABLE = (_LABEL, "true")
"""Label and value of pods whose deletes are refused within `deletes_refused`."""


def deletes_refused(space: Space, witness: str) -> AbstractAsyncContextManager[None]:
    """Refuse every delete of the space's pods that have the label UNDELETABLE, for the length of a block.

    `witness` names such a pod; a dry run on it tells when the policy is in force, and when no more.
    """

    async def dry_run() -> None:
        path = f"/api/v1/namespaces/{space.namespace}/pods/{witness}"
        await space.api.request("DELETE", path, query={"dryRun": "All"})

    return _refused(
        space,
        resource="pods",
        operation="DELETE",
        unless=f"!('{_LABEL}' in oldObject.metadata.?labels.orValue({{}}))",
        message="this pod may not be deleted",
        dry_run=dry_run,
    )


@asynccontextmanager
async def nominations_refused(space: Space) -> AsyncIterator[None]:
    """Refuse every write that nominates a pod of the space, for the length of a block."""
    await space.create(make_pod("witness").spec(schedulingGates=[{"name": "example.com/hold"}]))

    async def dry_run() -> None:
        await space.api.request(
            "PATCH",
            f"/api/v1/namespaces/{space.namespace}/pods/witness/status",
            query={"dryRun": "All"},
            body=b'{"status": {"nominatedNodeName": "n1"}}',
            content_type="application/merge-patch+json",
        )

    async with _refused(
        space,
        resource="pods/status",
        operation="UPDATE",
        unless="object.status.?nominatedNodeName.orValue('') == ''",
        message="this pod may not be nominated",
        dry_run=dry_run,
    ):
        yield
    await space.delete("witness")


@asynccontextmanager
async def _refused(
    space: Space,
    *,
    resource: str,
    operation: str,
    unless: str,
    message: str,
    dry_run: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    name = f"{operation.lower()}-{space.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": space.namespace}}
    await space.post(
        f"{_ADMISSION}/validatingadmissionpolicies",
        {
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": namespace},
                "validations": [{"expression": unless, "message": message, "reason": "Forbidden"}],
            },
        },
    )
    await space.post(
        f"{_ADMISSION}/validatingadmissionpolicybindings",
        {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}},
    )
    await _until_refused(dry_run, True)
    try:
        yield
    finally:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await space.api.request("DELETE", f"{_ADMISSION}/{kind}/{name}")
        await _until_refused(dry_run, False)


async def _until_refused(dry_run: Callable[[], Awaitable[None]], wanted: bool) -> None:
    async def ask() -> bool:
        refused = False
        try:
            await dry_run()
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            refused = error.status == 403
        if refused != wanted:
            raise NotYet("refused" if refused else "not refused")
        return True

    what = "the admission policy is in force" if wanted else "the admission policy is gone"
    await until(what, ask, seconds=60)
