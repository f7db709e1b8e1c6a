"""Taking orders: ahead of their turn but not too many, kept while they are in hand, ended in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, NoReturn, Protocol

import structlog

from makeway.bus.errors import BusUnavailable
from makeway.evictor.act.records import OrderDelivery
from makeway.evictor.limits.hand import MAX_IN_HAND, places_of
from makeway.evictor.limits.slots import Slots

KEEP_SECONDS = 3.0
"""Between two in-progress acknowledgements; a third of the consumer's AckWait of 10 s."""

NEXT_TIMEOUT_SECONDS = 30.0
"""How long one wait for an order lasts; nothing depends on it."""

DRAIN_SECONDS = 10.0
"""How long orders under way may take to end when the process is told to stop. Those that do not are
delivered again at once. Kubernetes waits 30 s before it kills."""

_log = structlog.get_logger()


class OrderSource(Protocol):
    """Where orders come from; see `makeway.bus.streams.orders_consumer.OrdersConsumer`."""

    async def next(self, timeout_seconds: float) -> OrderDelivery | None:
        """The next order, or None when the time is over."""


async def take_forever(
    orders: OrderSource,
    handle: Callable[[OrderDelivery], Coroutine[Any, Any, None]],
    slots: Slots,
    most: int = MAX_IN_HAND,
    *,
    ready: asyncio.Event | None = None,
) -> NoReturn:
    """Hand each order to `handle`, while they take less than `most` places; `slots` says which of them work.

    None is taken while `ready` is not set, and one that comes then is given back: others take them.
    When cancelled, orders that wait for their first slot are cancelled, and those under way may end for
    `DRAIN_SECONDS`; then they are cancelled, too. `handle` answers that by giving its order back. An error
    that leaves `handle` is raised here: it is a defect, and the process starts afresh.
    """
    used, freed = 0, asyncio.Event()
    under_way: set[asyncio.Task[None]] = set()
    broken: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()

    def ended(places: int, task: asyncio.Task[None]) -> None:
        nonlocal used
        under_way.discard(task)
        used -= places
        freed.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not broken.done():
            broken.set_exception(error)

    async def take() -> NoReturn:
        nonlocal used
        while True:
            while used >= most:
                freed.clear()
                await freed.wait()
            if ready is not None:
                await ready.wait()
            delivery = await orders.next(NEXT_TIMEOUT_SECONDS)
            if delivery is not None and ready is not None and not ready.is_set():
                with contextlib.suppress(BusUnavailable):  # it comes again
                    await delivery.nak()
            elif delivery is not None:
                places = places_of(len(delivery.data))
                used += places
                task = asyncio.create_task(handle(delivery))
                under_way.add(task)
                task.add_done_callback(partial(ended, places))

    taking = asyncio.create_task(take())
    try:
        await asyncio.wait({taking, broken}, return_when=asyncio.FIRST_COMPLETED)
        await (broken if broken.done() else taking)
    finally:
        taking.cancel()
        slots.stop_waiting()
        await _drain(under_way)
        if not broken.cancel() and not broken.cancelled():
            broken.exception()  # seen: without this the loop would report it as lost
    raise AssertionError("both end by raising only")


async def _drain(under_way: set[asyncio.Task[None]]) -> None:
    if not under_way:
        return
    _log.info("draining", orders=len(under_way))
    _, late = await asyncio.wait(under_way, timeout=DRAIN_SECONDS)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


@contextlib.asynccontextmanager
async def extended(delivery: OrderDelivery) -> AsyncIterator[None]:
    """Tell the server every `KEEP_SECONDS` that the order is being worked on.

    An order that ends sooner, as most do, costs a timer and no task.
    """
    keeping: asyncio.Task[NoReturn] | None = None

    async def keep() -> NoReturn:
        while True:
            try:
                await delivery.in_progress()
            except BusUnavailable as error:
                _log.warning("order_not_extended", error=str(error))
            await asyncio.sleep(KEEP_SECONDS)

    def begin() -> None:
        nonlocal keeping
        keeping = asyncio.create_task(keep())

    timer = asyncio.get_running_loop().call_later(KEEP_SECONDS, begin)
    try:
        yield
    finally:
        timer.cancel()
        if keeping is not None:
            keeping.cancel()
