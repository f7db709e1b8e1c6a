"""Whether makeway is installed in a namespace at all; where it is not, no other answer helps."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from makeway.cli.check.result import CheckResult
from makeway.cli.connect.nats import CONFIGMAP
from makeway.cli.connect.objects import Bare, listed
from makeway.cli.connect.session import Installation
from makeway.cli.errors import fail
from makeway.runtime.kube import Api, ApiError

_NAME: Final = "installation"
_ACCOUNT: Final = "makeway-planner"
_SHOWN: Final = 5
_ELSEWHERE: Final = "give --makeway-namespace"


async def not_installed(api: Api, namespace: str) -> CheckResult | None:
    """Say so where makeway is not installed there; None where it is, or where that may not be asked.

    The chart, and whoever follows docs/install.md, makes the planner's service account; the chart also makes
    the ConfigMap that says where NATS is.

    Raises:
        ApiError, ApiUnavailable: the API server did not answer.
    """
    for path in (f"configmaps/{CONFIGMAP}", f"serviceaccounts/{_ACCOUNT}"):
        if await may_be_there(api, f"/api/v1/namespaces/{namespace}/{path}"):
            return None
    detail = f"makeway is not installed in {namespace}"
    if not await may_be_there(api, f"/api/v1/namespaces/{namespace}"):
        detail += ", which does not exist"
    elsewhere = await _elsewhere(api)
    if elsewhere:
        shown = ", ".join(elsewhere[:_SHOWN])
        return CheckResult(_NAME, "wrong", f"{detail}; it is in {shown}", _ELSEWHERE)
    remedy = (
        "give --makeway-namespace, or --nats-url where it runs outside the cluster; else see docs/install.md"
    )
    return CheckResult(_NAME, "wrong", detail, remedy)


async def must_be_installed(api: Api, installation: Installation, *, changes: bool) -> None:
    """End a command that shows or changes what makeway goes by, where it is not installed.

    A brake that is set in another namespace stops nothing, though it reads as if it did. A change is refused
    only where makeway is known to be elsewhere: it may also run outside the cluster, or be installed next.
    Raises ApiUnavailable, and ApiError where nothing is to be changed.
    """
    if installation.nats_url is not None:
        return
    try:
        missing = await not_installed(api, installation.makeway_namespace)
    except ApiError:
        if not changes:
            raise
        return
    if missing is not None and (missing.remedy == _ELSEWHERE or not changes):
        fail(f"{missing.detail}; {missing.remedy}")


async def may_be_there(api: Api, path: str) -> bool:
    """Report whether there is such an object, or we may not know."""
    try:
        await api.request("GET", path)
    except ApiError as error:
        if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
            raise
        return error.status != HTTPStatus.NOT_FOUND
    return True


async def _elsewhere(api: Api) -> list[str]:
    """Return the namespaces in which there is an installation, as far as we may look."""
    query = {"fieldSelector": f"metadata.name={CONFIGMAP}", "limit": "50"}
    try:
        return sorted(
            one.metadata.namespace for one in await listed(api, "/api/v1/configmaps", Bare, query=query)
        )
    except ApiError:
        return []
