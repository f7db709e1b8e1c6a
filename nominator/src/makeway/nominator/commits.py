"""Committing an order: nominate its pod, wait until that shows, store the order; or leave nothing behind.

Each runs beside the rounds. Every step is bounded: a patch, the time in which it shows, an order's life.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog

from makeway.bus import tracing
from makeway.bus.client import Last
from makeway.bus.errors import BusError, Malformed
from makeway.bus.messages import PAST_DEADLINE, EvictionOrder
from makeway.bus.publishing import AlreadyExists
from makeway.nominator.attempts import AttemptsByPod
from makeway.nominator.cluster import Changed, StoredPod
from makeway.nominator.in_flight import OrderInFlight, OrdersInFlight
from makeway.nominator.nominations import Nominations
from makeway.nominator.parts import NominatorParts
from makeway.runtime.failpoints import failpoint
from makeway.runtime.kube import ApiError, ApiUnavailable

NOMINATION_SHOWS: Final = timedelta(seconds=2)
"""How long a nomination may take to come back through the watch; the plugin waits as long."""

READ_BACK_SECONDS: Final = 1.0

_log = structlog.get_logger()


class Commits:
    """Those of one nominator, while it leads. `wake` is called when one has ended."""

    def __init__(
        self,
        parts: NominatorParts,
        in_flight: OrdersInFlight,
        attempts: AttemptsByPod,
        nominations: Nominations,
        wake: Callable[[], None],
    ) -> None:
        self._bus = parts.bus
        self._cluster = parts.cluster
        self._pods = parts.pods
        self._metrics = parts.metrics
        self._in_flight = in_flight
        self._attempts = attempts
        self._nominations = nominations
        self._wake = wake
        self._shown: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, order: EvictionOrder, stored: StoredPod, waits_until: datetime | None = None
    ) -> OrderInFlight:
        """Begin to commit an order for a pod as it was read; one that waits is never stored."""
        begun = self._in_flight.begin(order, waits_until=waits_until)
        self._start(self._commit(begun, stored), "commit")
        return begun

    def keep(self, one: OrderInFlight) -> None:
        """Begin to see that the stream still has an order."""
        self._start(self._keep_stored(one), "keep")

    def changed(self, uid: str) -> None:
        """Take note that a pod has changed: its nomination may show."""
        if (shown := self._shown.get(uid)) is not None:
            shown.set()

    async def stop(self) -> None:
        """End what is under way, as it is."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Have something done beside the rounds, which ends with the lead."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task_failed_unexpectedly", task=task.get_name(), error=str(error), exc_info=error)
        self._wake()

    async def _commit(self, one: OrderInFlight, stored: StoredPod) -> None:
        """Nominate the pod, wait until that shows, and store the order; or take the nomination back."""
        order, pod = one.order, stored.pod
        try:
            last = await self._bus.last_order(one.uid)
            if isinstance(last, Last) and await self._is_live(last.message):
                self._give_up(one, "changed", "another order for this pod is in the stream")
                return
            sequence = last.sequence if last is not None else 0
            shown = self._shown.setdefault(one.uid, asyncio.Event())
            await failpoint("nominator.before-nominate", order.order_id)
            await self._cluster.nominate(pod, order.node)
            _log.info("preemptor_nominated", order_id=order.order_id, pod_uid=one.uid, node=order.node)
            await failpoint("nominator.after-nominate", order.order_id)
            if not await self._shows(one, shown):
                await self._take_back(one, "not_stored", "the nomination did not show in the API")
                return
            if one.waits:
                one.stored = True
                return
            await failpoint("nominator.before-publish", order.order_id)
            # The time it took to show is not the evictor's: it counts from now on.
            if not await self._publish(one, sequence):
                await self._take_back(one, "not_stored", "the order could not be stored")
                return
            await failpoint("nominator.after-publish", order.order_id)
            one.stored, one.looked_at = True, datetime.now(UTC)
            _log.info(
                "order_committed",
                order_id=order.order_id,
                decision_id=order.decision_id,
                pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
                pod_uid=one.uid,
                node=order.node,
                victims=len(order.victims),
                awaited=len(order.awaited),
            )
        except Changed as changed:
            self._give_up(one, "changed", str(changed))
        except Malformed as error:
            self._give_up(one, "not_stored", f"the pod's last order cannot be read: {error}")
        except (ApiError, ApiUnavailable, BusError) as error:
            await self._take_back(one, "not_stored", str(error))
        finally:
            self._shown.pop(one.uid, None)

    async def _shows(self, one: OrderInFlight, shown: asyncio.Event) -> bool:
        """Wait until the watch shows the nomination. An evictor could not roll back what is not there yet."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NOMINATION_SHOWS.total_seconds()):
                while True:
                    pod = self._pods.by_uid.get(one.uid)
                    if pod is None or pod.leaving:
                        return False
                    if pod.nominated == one.order.node:
                        return True
                    shown.clear()
                    await shown.wait()
        return False

    async def _publish(self, one: OrderInFlight, sequence: int) -> bool:
        """Store the order, as the one live order of its pod. Return whether it is stored.

        Where that cannot be known it is read back, until it is known or the order's time is over.
        """
        order = one.order
        try:
            with tracing.span("publish", order_id=order.order_id):
                answer = await self._bus.publish_order(order, sequence)
        except BusError as error:
            _log.warning("order_publish_ambiguous", order_id=order.order_id, reason=str(error))
        else:
            return not isinstance(answer, AlreadyExists) or await self._is_last(one)
        while datetime.now(UTC) < order.not_after + PAST_DEADLINE:
            try:
                return await self._is_last(one)
            except BusError:
                await asyncio.sleep(READ_BACK_SECONDS)
        return False

    async def _is_last(self, one: OrderInFlight) -> bool:
        last = await self._bus.last_order(one.uid)
        return isinstance(last, Last) and last.message.order_id == one.order.order_id

    async def _is_live(self, order: EvictionOrder) -> bool:
        if datetime.now(UTC) >= order.not_after + PAST_DEADLINE:
            return False
        return await self._bus.outcome(order.order_id) is None

    async def _keep_stored(self, one: OrderInFlight) -> None:
        """Store an order again that NATS has lost. It has its id and its time still, so it is done once."""
        try:
            if await self._bus.last_order(one.uid) is not None:
                return
            await self._bus.publish_order(one.order, 0)
        except (BusError, Malformed) as error:
            _log.warning("order_not_stored_again", order_id=one.order.order_id, reason=str(error))
        else:
            _log.warning("order_stored_again", order_id=one.order.order_id, pod_uid=one.uid)

    def _give_up(self, one: OrderInFlight, result: str, why: str) -> None:
        """Forget an order that is not stored, of which nothing is left."""
        self._metrics.orders.labels(result).inc()
        self._in_flight.end(one.order.order_id)
        one.preemption.end(why, result=result)
        now = datetime.now(UTC)
        self._attempts.of(one.uid, now).pause(now)
        _log.info("order_dropped", order_id=one.order.order_id, pod_uid=one.uid, reason=why)

    async def _take_back(self, one: OrderInFlight, result: str, why: str) -> None:
        """Remove the nomination of an order that is not stored, where it is still the nominator's."""
        self._give_up(one, result, why)
        if one.order.preemptor is not None:
            await self._nominations.clear(
                one.order.preemptor.namespace, one.order.preemptor.name, one.uid, result
            )
