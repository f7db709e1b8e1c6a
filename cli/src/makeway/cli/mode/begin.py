"""What would begin where a mode is changed to enforce: what mode observe has found. Pure, but for reading."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from makeway.bus.comparison import Comparison
from makeway.bus.errors import BusError
from makeway.cli.connect.session import Installation
from makeway.cli.history.comparisons import comparisons, sentences, summed
from makeway.core.policy.document import Policy
from makeway.core.text import counted
from makeway.runtime.kube import ApiError, ApiUnavailable

LOOKED_BACK: Final = timedelta(days=1)


def begins(before: Policy, after: Policy, namespace: str) -> bool:
    """Report whether a policy enforces where the one before did not: in a namespace, or the cluster."""
    return after.mode_for(namespace) == "enforce" != before.mode_for(namespace)


def found_lines(found: Iterable[Comparison], namespace: str) -> list[str]:
    """Say what makeway would have done, for the preemptors of a namespace or of all."""
    chosen = [one for one in found if not namespace or one.preemptor.namespace == namespace]
    planned = [one.makeway for one in chosen if one.makeway is not None]
    pods = {one.preemptor.uid for one in chosen if one.makeway is not None}
    victims = sum(len(one.victims) for one in planned)
    where = f"in namespace {namespace}" if namespace else "in the cluster"
    first = (
        f"observed {where} in the last day: makeway would have made room for {counted(len(pods), 'pod')}, "
        f"with {counted(victims, 'victim')}"
    )
    return [first, *sentences(summed(chosen))]


async def what_would_begin(installation: Installation, namespace: str) -> list[str]:
    """Read what mode observe has found lately, and say it; or say that it cannot be read."""
    try:
        async with installation.bus() as bus:
            found = await comparisons(bus, datetime.now(UTC) - LOOKED_BACK)
    except (BusError, ApiError, ApiUnavailable) as error:
        return [f"what mode observe has found cannot be read: {error}"]
    return found_lines(found, namespace)
