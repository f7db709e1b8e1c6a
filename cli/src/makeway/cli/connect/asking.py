"""Ask by the API `ask.makeway.dev`: for a user who may not read where NATS is, as every tenant is."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from makeway.cli.connect.session import Installation
from makeway.cli.errors import UNREACHABLE, fail
from makeway.cli.output import Printer
from makeway.runtime.kube import ApiError

_ROOT: Final = "/apis/ask.makeway.dev/v1/namespaces"
_SECONDS: Final = 60.0
_NOT_SERVED: Final = "404 page not found"
_NOT_FOUND: Final = "could not find the requested resource"
_OF_THE_ANSWER: Final = (400, 404, 413, 429)
"""What that API says no with, in sentences for whoever asked."""


async def asked(
    installation: Installation, printer: Printer, path: str, *, body: bytes | None = None, instead: ApiError
) -> bytes:
    """Return the answer to a question about a namespace, and say on stderr who gave it.

    path: below the namespaces. body: of a simulation. instead: what the user was refused first, told where
    this API is not served either; ends the command then. Raises ApiError, ApiUnavailable.
    """
    try:
        async with installation.api() as api:
            answer = await api.request(
                "GET" if body is None else "POST", f"{_ROOT}/{path}", body=body, timeout_seconds=_SECONDS
            )
    except ApiError as error:
        missing = _NOT_SERVED in error.message or _NOT_FOUND in error.message
        if missing or (error.status == HTTPStatus.FORBIDDEN and "ask.makeway.dev" in error.message):
            fail(
                f"no permission: {instead.message}; tenants are answered where an administrator has set "
                "apiserver.enabled of the chart, and you may get pods in the namespace",
                UNREACHABLE,
            )
        if error.status in _OF_THE_ANSWER:
            fail(error.message)
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            # kube-apiserver says "service unavailable" where it does not reach it, and nothing else.
            fail(
                f"the API ask.makeway.dev, which answers tenants, does not answer now ({error.message}); ask "
                "again, and else whoever runs makeway",
                UNREACHABLE,
            )
        raise
    printer.note(
        f"makeway: you may not read namespace {installation.makeway_namespace}, so the API ask.makeway.dev "
        "has answered; it names no pod of another namespace"
    )
    return answer
