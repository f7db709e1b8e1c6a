"""What an operator does meanwhile: closes the evictors' breaker, which forged messages open."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

from typer.testing import CliRunner

from integration.cluster import RunningCluster
from makeway.cli.mode.breaker import app, stored_trips

NAMESPACE = "makeway-system"


async def close_breaker(cluster: RunningCluster, counts: Counter[str]) -> list[str]:
    """Reset the breaker where it is open; gives what it was open for, and counts it by its cause.

    Raises:
        ApiError, ApiUnavailable: it cannot be read just now.
    """
    async with cluster.connect() as api:
        trips = await stored_trips(api, NAMESPACE, datetime.now(UTC))
    if not trips:
        return []
    counts.update(f"breaker opened by {trip.cause}" for trip in trips)
    await asyncio.to_thread(CliRunner().invoke, app, ["reset", f"--kubeconfig={cluster.info.kubeconfig}"])
    return [f"{trip.cause} {trip.namespace or 'everywhere'}: {trip.detail}" for trip in trips]
