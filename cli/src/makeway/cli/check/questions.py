"""The aggregated API for tenants: whether kube-apiserver reaches it, where it is installed."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from makeway.cli.check.result import CheckResult
from makeway.runtime.kube import Api, ApiError

NAME: Final = "tenants' questions"
_PATH: Final = "/apis/apiregistration.k8s.io/v1/apiservices/v1.ask.makeway.dev"


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: tuple[_Condition, ...] = ()


class _ApiService(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def questions_results(api: Api) -> list[CheckResult]:
    """Look at the APIService; nothing where there is none, since it is off by default.

    Raises ApiError, ApiUnavailable.
    """
    try:
        found = msgspec.json.decode(await api.request("GET", _PATH), type=_ApiService)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return []
        if error.status == HTTPStatus.FORBIDDEN:
            return [CheckResult(NAME, "unknown", error.message, "ask whoever may read APIServices")]
        raise
    available = next((one for one in found.status.conditions if one.type == "Available"), _Condition())
    return [judge(available.status, available.message)]


def judge(status: str, message: str) -> CheckResult:
    """Say what its condition Available means. Pure."""
    if status == "True":
        return CheckResult(NAME, "ok", "APIService v1.ask.makeway.dev is available")
    told = message or "kube-apiserver has not looked at it yet"
    return CheckResult(
        NAME,
        "wrong",
        "APIService v1.ask.makeway.dev is not available, and until it is no namespace is deleted to the "
        f"end: {told}",
        "see that makeway-apiserver runs and that the API server reaches its port 8443; or set "
        "apiserver.enabled=false",
    )
