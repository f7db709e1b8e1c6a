"""The Secrets that `makeway streams --keep` made: how many, and which were lost and made again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from makeway.cli.check.result import CheckResult
from makeway.cli.connect.objects import Bare, listed
from makeway.cli.keys.keeping import MADE_AGAIN, MANAGED_BY
from makeway.core.k8s.objects import Metadata
from makeway.runtime.kube import METADATA_ONLY, Api

_NAME: Final = "secrets"


async def secrets_results(api: Api, namespace: str) -> Sequence[CheckResult]:
    """Look at what is stored of them, not at what they hold; nothing where none was made in the cluster.

    Raises:
        ApiError, ApiUnavailable: the API server did not answer.
    """
    made = await listed(
        api,
        f"/api/v1/namespaces/{namespace}/secrets",
        Bare,
        query={"labelSelector": f"app.kubernetes.io/managed-by={MANAGED_BY}"},
        accept=METADATA_ONLY.replace("PartialObjectMetadata", "PartialObjectMetadataList"),
    )
    return judge([one.metadata for one in made])


def judge(found: Sequence[Metadata]) -> Sequence[CheckResult]:
    """Return what is to be said of them. Pure."""
    if not found:
        return ()
    again = [
        f"{one.name} ({at})" for one in found if (at := (one.annotations or {}).get(MADE_AGAIN)) is not None
    ]
    lost = f"; lost and made again: {', '.join(sorted(again))}" if again else ""
    return (CheckResult(_NAME, "ok", f"{len(found)} made in the cluster{lost}"),)
