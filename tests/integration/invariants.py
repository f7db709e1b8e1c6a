"""The independent checker at the end of a test, over its space."""

import asyncio
from datetime import UTC, datetime, timedelta

from integration.cluster import RunningCluster
from integration.space import Space
from makeway.dev.checker.check import check
from makeway.dev.checker.findings import Findings
from makeway.dev.checker.history import RecordedHistory, Streams
from makeway.dev.checker.read import read_requests, read_streams

_POLL_SECONDS = 0.3
_READS = 5
_LONGEST = timedelta(minutes=3, seconds=30)
"""Of all bounds; one that is further away depends on an outage that does not end."""


async def streams_of(cluster: RunningCluster, *, since: datetime | None = None) -> Streams:
    """The raw streams now: keep them before a test loses the store, and give them to `assert_invariants`."""
    async with cluster.jetstream() as jetstream:
        return await read_streams(jetstream, cluster.owned.options.subject_prefix, since=since)


async def assert_invariants(space: Space, *, wait: bool = True, lost: Streams | None = None) -> Findings:
    """Judge everything that happened in a space.

    wait: until the promises with a bound in time are kept or broken; there is no wait where none is open.
    lost: what the streams held before the test lost them.

    Raises:
        AssertionError: a promise was broken; the text has the evidence.
    """
    while True:
        now = datetime.now(UTC)
        report = check(await _history(space, now, lost or Streams()), now)
        assert not report.violations, f"the checker found\n{report}"
        if not (wait and report.pending):
            return report
        assert report.pending[-1].due - now < _LONGEST, f"never due\n{report}"
        await asyncio.sleep(_POLL_SECONDS)


async def _history(space: Space, now: datetime, lost: Streams) -> RecordedHistory:
    """Read streams and requests while no order came or ended, if that is so soon."""
    latest = await streams_of(space.cluster, since=space.opened_at)
    for _ in range(_READS):
        streams = latest
        requests = await asyncio.to_thread(read_requests, space.audit, space.namespace, streams)
        latest = await streams_of(space.cluster, since=space.opened_at)
        before, after = streams.within(space.namespace), latest.within(space.namespace)
        if (before.orders, before.outcomes) == (after.orders, after.outcomes):
            break
    return RecordedHistory(
        requests,
        streams.joined(lost).within(space.namespace),
        fallback=space.cluster.owned.options.fallback,
        simple_preemptor=space.simple_preemptor,
        outages=space.cluster.outages(now),
        accounts=space.cluster.accounts(),
        in_force=space.in_force,
    )
