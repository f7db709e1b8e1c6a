"""What an operator does meanwhile: closes the evictors' breaker, which forged messages open."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

from typer.testing import CliRunner

from integration.cluster import RunningCluster
from makeway.cli.connect.configmaps import read_map
from makeway.cli.mode.breaker import app
from makeway.core.policy.breaker import CONFIGMAP, parse_breaker

NAMESPACE = "makeway-system"


async def close_breaker(cluster: RunningCluster, counts: Counter[str]) -> list[str]:
    """Reset the breaker where it is open; gives what it was open for, and counts it by its cause.

    Raises:
        ApiError, ApiUnavailable: it cannot be read just now.
    """
    async with cluster.connect() as api:
        now, stored = datetime.now(UTC), await read_map(api, NAMESPACE, CONFIGMAP)
    trips = [trip for trip in parse_breaker(stored.data, now)[0].values() if trip.holds(now)]
    if not trips:
        return []
    counts.update(f"breaker opened by {trip.cause}" for trip in trips)
    await asyncio.to_thread(CliRunner().invoke, app, ["reset", f"--kubeconfig={cluster.info.kubeconfig}"])
    return [f"{trip.cause} {trip.namespace or 'everywhere'}: {trip.detail}" for trip in trips]
