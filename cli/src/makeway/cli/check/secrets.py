"""The Secrets of `makeway streams --keep`: how many it made, which it made again, which it cannot read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import Bare, listed
from makeway.cli.keys.keeping import MADE_AGAIN
from makeway.cli.keys.stores import MANAGED_BY, MANAGED_BY_LABEL, UNREADABLE
from makeway.core.k8s.objects import Metadata
from makeway.runtime.kube import METADATA_ONLY, Api

_NAME: Final = "secrets"


async def secrets_results(api: Api, namespace: str) -> Sequence[CheckResult]:
    """Look at what is noted on them, not at what they hold; nothing where none was made in the cluster.

    Raises:
        ApiError, ApiUnavailable: the API server did not answer.
    """
    found = await listed(
        api,
        f"/api/v1/namespaces/{namespace}/secrets",
        Bare,
        accept=METADATA_ONLY.replace("PartialObjectMetadata", "PartialObjectMetadataList"),
    )
    return judge([one.metadata for one in found])


def judge(found: Sequence[Metadata]) -> Sequence[CheckResult]:
    """Return what is to be said of them. Pure."""
    made = [one for one in found if (one.labels or {}).get(MANAGED_BY_LABEL) == MANAGED_BY]
    if unreadable := _noted(found, UNREADABLE):
        remedy = "write it anew, or delete it: makeway streams --keep makes it again"
        return (CheckResult(_NAME, "wrong", f"unreadable: {unreadable}", remedy),)
    if not made:
        return ()
    again = _noted(found, MADE_AGAIN)
    lost = f"; lost and made again: {again}" if again else ""
    return (CheckResult(_NAME, "ok", f"{len(made)} made in the cluster{lost}"),)


def _noted(found: Sequence[Metadata], annotation: str) -> str:
    """Name the Secrets that have an annotation, and what it says."""
    noted = [(one.name, text) for one in found if (text := (one.annotations or {}).get(annotation))]
    return ", ".join(f"{name} ({text})" for name, text in sorted(noted))
