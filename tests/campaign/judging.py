"""Judge a run: the independent checker over all that was recorded, and what must be true in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from campaign.load import Load, is_urgent
from campaign.settings import in_force
from integration.cluster import RunningCluster
from integration.crashing import is_marked
from integration.invariants import streams_of
from makeway.bus.subjects import Subjects
from makeway.dev.audit_log import AuditLog
from makeway.dev.checker.check import check
from makeway.dev.checker.findings import Findings
from makeway.dev.checker.history import RecordedHistory, Streams
from makeway.dev.checker.read import read_requests

QUIET_SECONDS = 180.0
"""Within this time of the load's end everything has settled."""
POLL_SECONDS = 3.0


@dataclass(frozen=True)
class Verdict:
    """What was found in the end. `left`: what had not settled; `injected`: what was done meanwhile."""

    findings: Findings
    left: tuple[str, ...]
    streams: Streams
    history: RecordedHistory
    injected: tuple[tuple[datetime, datetime, str], ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings.violations and not self.findings.pending and not self.left


class Judge:
    """Keeps the messages of a run, of which streams hold a few for each pod, and judges them."""

    def __init__(self, cluster: RunningCluster, cluster_uid: str) -> None:
        self._cluster = cluster
        self.cluster_uid = cluster_uid
        self.streams = Streams()
        self.brakes: list[tuple[datetime, datetime]] = []
        self.forged: set[tuple[str, int]] = set()
        """The places in the streams of messages that no part of makeway has written."""

    async def keep(self) -> None:
        """Read what was said until now."""
        self.streams = (await streams_of(self._cluster)).joined(self.streams)

    async def judge(self, outages: Sequence[tuple[datetime, datetime]]) -> tuple[Findings, RecordedHistory]:
        """Check everything that was recorded until now."""
        await self.keep()
        requests = await asyncio.to_thread(
            read_requests, AuditLog(self._cluster.info.audit_log, whole=True), "", self.streams
        )
        history = RecordedHistory(
            requests,
            without(self.streams, self.forged),
            fallback=False,
            simple_preemptor=True,
            outages=tuple(outages),
            in_force=in_force(self.cluster_uid, tuple(self.brakes)),
        )
        return await asyncio.to_thread(check, history, datetime.now(UTC)), history

    async def settle(
        self,
        load: Load,
        outages: Sequence[tuple[datetime, datetime]],
        injected: Sequence[tuple[datetime, datetime, str]],
    ) -> Verdict:
        """Wait until all urgent pods are bound and nothing is left behind, then judge."""
        deadline = asyncio.get_running_loop().time() + QUIET_SECONDS
        while left := await unsettled(load):
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(POLL_SECONDS)
        while True:
            findings, history = await self.judge(outages)
            if findings.violations or not findings.pending:
                break
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(POLL_SECONDS)
        return Verdict(findings, tuple(left), self.streams, history, tuple(injected))


def without(streams: Streams, forged: Collection[tuple[str, int]]) -> Streams:
    """What makeway's own parts have written."""
    names = Subjects()
    left_out = {number for stream, number in forged if stream == names.orders_stream}
    orders = tuple(stored for stored in streams.orders if stored.sequence not in left_out)
    left_out = {number for stream, number in forged if stream == names.outcomes_stream}
    known = {stored.message.order_id for stored in orders}
    outcomes = tuple(
        stored
        for stored in streams.outcomes
        # The one outcome of a forged order, which an evictor has refused, is its answer to the forger.
        if stored.sequence not in left_out and stored.message.order_id in known
    )
    return replace(streams, orders=orders, outcomes=outcomes)


def answered(streams: Streams, forged: Collection[tuple[str, int]]) -> list[str]:
    """Return the forged orders that an evictor has answered: where signatures are required, it reads none."""
    orders_stream, outcomes_stream = Subjects().orders_stream, Subjects().outcomes_stream
    real = {one.message.order_id for one in streams.orders if (orders_stream, one.sequence) not in forged}
    false = {one.message.order_id for one in streams.orders} - real
    return [
        f"forged order {one.message.order_id} has an outcome: {one.message.result}"
        for one in streams.outcomes
        if (outcomes_stream, one.sequence) not in forged and one.message.order_id in false
    ]


async def unsettled(load: Load) -> list[str]:
    """What has to end: urgent pods that wait, nominations of pods that wait, marks of pods that stay."""
    left = []
    for pod in await load.pods():
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if pod.metadata.deletion_timestamp is not None:
            continue
        if is_urgent(pod) and not pod.spec.node_name:
            left.append(f"urgent pod {name} is not bound")
        if is_marked(pod):
            left.append(f"pod {name} is marked")
        if pod.status.nominated_node_name and not pod.spec.node_name and not _own_nomination(name):
            left.append(f"pod {name} is nominated")
    return left


def _own_nomination(name: str) -> bool:
    """Whether the pod was created with a nomination by a hostile tenant, which is nobody's order."""
    return "/hostile-" in name


def counts_of(verdict: Verdict) -> dict[str, int]:
    """Orders, evictions and rollbacks of a run, without what was forged."""
    streams = verdict.history.streams
    orders = [stored.message for stored in streams.orders if stored.message.void is None]
    outcomes = [stored.message for stored in streams.outcomes]
    results = Counter(outcome.result for outcome in outcomes)
    deleted = sum(one.result == "deleted" for outcome in outcomes for one in outcome.victims)
    rollbacks = sum(outcome.rollback is not None for outcome in outcomes)
    return {
        "orders": len(orders),
        "voids": len(streams.orders) - len(orders),
        "quota orders": sum(order.kind == "quota" for order in orders),
        "victims deleted": deleted,
        "rollbacks": rollbacks,
        **{f"outcomes {result}": number for result, number in sorted(results.items())},
        "decisions": len(streams.decisions),
        "audited writes": len(verdict.history.requests),
    }
