"""The independent checker at the end of a test: over its space, or over the whole cluster."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from integration.cluster import RunningCluster
from integration.space import Space
from makeway.dev.audit_log import AuditLog
from makeway.dev.checker.check import check
from makeway.dev.checker.findings import Findings
from makeway.dev.checker.history import InForce, RecordedHistory, Streams
from makeway.dev.checker.read import read_requests, read_streams

_POLL_SECONDS = 0.3
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
    scope = _Scope(
        space.cluster,
        space.audit,
        space.namespace,
        space.opened_at,
        simple_preemptor=space.simple_preemptor,
        in_force=space.in_force,
    )
    return await _assert(scope, wait, lost or Streams())


async def assert_cluster_invariants(
    cluster: RunningCluster, *, wait: bool = True, lost: Streams | None = None
) -> Findings:
    """Judge everything that happened in a cluster since it was started; see `assert_invariants`."""

    scope = _Scope(cluster, AuditLog(cluster.info.audit_log, whole=True))
    return await _assert(scope, wait, lost or Streams())


@dataclass(frozen=True)
class _Scope:
    """What is judged. `namespace`: empty for all; `since`: None for everything in the streams."""

    cluster: RunningCluster
    audit: AuditLog
    namespace: str = ""
    since: datetime | None = None
    simple_preemptor: bool = False
    in_force: InForce = field(default_factory=InForce)

    async def history(self, now: datetime, lost: Streams) -> RecordedHistory:
        streams = await streams_of(self.cluster, since=self.since)
        return RecordedHistory(
            await asyncio.to_thread(read_requests, self.audit, self.namespace, streams),
            streams.joined(lost).within(self.namespace),
            fallback=self.cluster.owned.options.fallback,
            simple_preemptor=self.simple_preemptor,
            outages=self.cluster.outages(now),
            accounts=self.cluster.accounts(),
            in_force=self.in_force,
        )


async def _assert(scope: _Scope, wait: bool, lost: Streams) -> Findings:
    while True:
        now = datetime.now(UTC)
        report = check(await scope.history(now, lost), now)
        assert not report.violations, f"the checker found\n{report}"
        if not (wait and report.pending):
            return report
        assert report.pending[-1].due - now < _LONGEST, f"never due\n{report}"
        await asyncio.sleep(_POLL_SECONDS)
