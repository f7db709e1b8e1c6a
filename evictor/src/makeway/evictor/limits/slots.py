"""Who works now: so many orders at once, the more important first, and none that only waits.

Orders are taken from the stream ahead of their turn, so that one of higher priority passes those that came
before it. An order holds one of the slots while any of its tasks works. It releases the slot while all that
is left of it waits to try again, or for another order, and asks for one anew; what has begun goes before
what has not, so that nothing stays half done. Of a namespace of which many orders are in trouble, such as
one whose admission webhook is dead, few may work at once: each try may take as long as a request does.

No effect depends on a slot; they only bound how much is asked of the API server.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from makeway.bus.messages import EvictionOrder
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import Clock

TROUBLE = timedelta(seconds=1)
"""An order that has to try again so long after it began is in trouble until it ends. Conflicts, of which
every storm has some, pass sooner."""

AT_ONCE: Final = 16
"""Pods of one order that are read, evicted or cleared at the same time, so that it does not take all of the
API server's patience."""

LAST = 1 << 31
"""The place of orders without a preemptor, behind every priority."""


class Slots:
    """The slots of one evictor. `share`: of a namespace in trouble, so many orders work at once."""

    def __init__(self, count: int, metrics: EvictorMetrics) -> None:
        self._free = count
        self.share = max(1, count // 4)
        self._metrics = metrics
        self._waiting: list[Turn] = []
        self._working: Counter[str] = Counter()
        self._troubled: Counter[str] = Counter()
        self._resting: set[Turn] = set()
        self.stopping = False

    def turn(self, order: EvictionOrder, sequence: int, clock: Clock) -> Turn:
        """Return an order's turn, not begun; `sequence`: of the order in its stream."""
        return Turn(self, order, sequence, clock)

    def stop_waiting(self) -> None:
        """Cancel the tasks of orders that have not begun, or wait for others: the process ends.

        What they wait for may take their whole life, and another evictor goes on from where they are.
        """
        self.stopping = True
        for turn in tuple(self._waiting):
            turn.stop_waiting()
        for turn in tuple(self._resting):
            turn.stop_resting()

    # ------------------------------------------------------------------------------- for turns

    def rests(self, turn: Turn, *, rests: bool) -> None:
        """Take note that an order waits for others, or no more."""
        (self._resting.add if rests else self._resting.discard)(turn)

    def ask(self, turn: Turn) -> None:
        """Put a turn in line, and serve."""
        insort(self._waiting, turn, key=_place)
        self.serve()

    def withdraw(self, turn: Turn) -> None:
        """Take a turn out of the line, if it is there."""
        if turn in self._waiting:
            self._waiting.remove(turn)
            self._count()

    def release(self, turn: Turn) -> None:
        """Take a slot back, and serve."""
        self._free += 1
        self._working.subtract(turn.namespaces)
        self._working = +self._working
        self.serve()

    def trouble(self, turn: Turn, change: int) -> None:
        """Count an order that is in trouble (1), or ends (-1)."""
        for namespace in turn.namespaces:
            self._troubled[namespace] += change
            if not self._troubled[namespace]:
                del self._troubled[namespace]
        self.serve()

    def serve(self) -> None:
        """Serve those that wait from the free slots. O(orders that wait)."""
        for turn in tuple(self._waiting) if self._free else ():
            if not self._free:
                break
            if not self._blocks_others(turn):
                self._waiting.remove(turn)
                self._free -= 1
                self._working.update(turn.namespaces)
                turn.granted()
        self._count()

    def _blocks_others(self, turn: Turn) -> bool:
        return any(
            self._troubled[namespace] >= self.share and self._working[namespace] >= self.share
            for namespace in turn.namespaces
        )

    def _count(self) -> None:
        self._metrics.waiting.set(len(self._waiting))


class Turn:
    """One order's, and its clock: an order that sleeps waits to try again, and needs no slot for that."""

    def __init__(self, slots: Slots, order: EvictionOrder, sequence: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        priority = order.room_for.priority if order.room_for is not None else None
        self.rank = (LAST if priority is None else -priority, sequence)
        """Greater where the order is less important: of lower priority, or as important and younger."""
        self.namespaces = frozenset(v.namespace for v in order.victims)
        self._holding = False
        self._begun: datetime | None = None
        self._in_trouble = False
        self._at_work = 0  # tasks within `work`
        self._idle = 0  # tasks that wait to try again, or for another order
        self._resting = 0  # of these, tasks that wait for another order, or for a cap
        self._asked = 0  # tasks that wait for a slot
        self._in_line = False
        self._given = asyncio.Event()
        self._first: asyncio.Task[object] | None = None
        self._task: asyncio.Task[object] | None = None  # the order's own
        self.on_wait: Callable[[], None] = _nothing
        """Called where all that is left of an order waits, for `TROUBLE` or so long after it began."""

    @property
    def has_begun(self) -> bool:
        """Whether the order has had a slot."""
        return self._begun is not None

    @property
    def place(self) -> tuple[bool, int, int]:
        """What orders the line: what has begun; higher priority; earlier in the stream."""
        return (self._begun is None, *self.rank)

    @property
    def only_waits(self) -> bool:
        """Whether all that is left of the order waits now, and it may be left to another delivery."""
        at_work = self._at_work or self._asked or not self._idle
        return not at_work and self.on_wait is not _nothing

    def stay(self) -> None:
        """Keep the order: what is known of it would be lost."""
        self.on_wait = _nothing

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Hold the order's slot, waiting for one first; siblings that wait to try again do not release it."""
        await self.enter()
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1
            self._leave_if_idle()

    async def enter(self) -> None:
        """Wait for a slot, where the order has none. Several of its tasks may wait at once, its own first."""
        self._task = self._task or asyncio.current_task()
        while not self._holding:
            await self._wait_in_line()

    async def _wait_in_line(self) -> None:
        if not self._in_line:
            self._in_line = True
            self._first = asyncio.current_task() if self._begun is None else None
            self._given.clear()
            self._slots.ask(self)
        self._asked += 1
        try:
            await self._given.wait()
        finally:
            self._asked -= 1
            if not self._asked and self._in_line:
                self._in_line = False
                self._slots.withdraw(self)

    def leave(self) -> None:
        """Free the slot, where the order has one."""
        if self._holding:
            self._holding = False
            self._slots.release(self)

    def end(self) -> None:
        """Leave for good: the order has ended, or is left to another delivery."""
        self.leave()
        if self._in_trouble:
            self._in_trouble = False
            self._slots.trouble(self, -1)

    def granted(self) -> None:
        """Called by the slots."""
        self._in_line = False
        self._holding = True
        self._begun = self._begun or self.now()
        self._first = None
        self._given.set()

    def stop_waiting(self) -> None:
        """Called by the slots: cancel an order that has not begun."""
        if self._first is not None:
            self._first.cancel()

    def stop_resting(self) -> None:
        """Called by the slots: cancel an order of which every task waits for other orders."""
        only_rests = self._resting == self._idle and not self._at_work and not self._asked
        if self._task is not None and self._resting and only_rests:
            self._task.cancel()

    def now(self) -> datetime:
        """The time, UTC."""
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        """Wait to try again, as `idle`; then for a slot."""
        if not self._in_trouble and self._begun and self.now() - self._begun >= TROUBLE:
            self._in_trouble = True
            self._slots.trouble(self, 1)
        await self._wait(seconds)
        await self.enter()

    async def idle(self, seconds: float) -> None:
        """Wait, without a slot unless a sibling works; nothing is wrong. `work` or `enter` afterwards."""
        self._resting += 1
        self._slots.rests(self, rests=True)
        try:
            await self._wait(seconds)
        finally:
            self._resting -= 1
            self._slots.rests(self, rests=self._resting > 0)

    async def _wait(self, seconds: float) -> None:
        self._idle += 1
        self._leave_if_idle()
        begun = self._begun or self.now()
        if not self._at_work and self.now() + timedelta(seconds=min(seconds, 1.0)) - begun >= TROUBLE:
            self.on_wait()
        try:
            await self._clock.sleep(seconds)
        finally:
            self._idle -= 1

    def _leave_if_idle(self) -> None:
        """Release the slot where no task works, and one waits; else one that follows has it."""
        if self._idle and not self._at_work:
            self.leave()
            if self._slots.stopping:
                self.stop_resting()


def _nothing() -> None:
    """Nothing follows from it."""


def _place(turn: Turn) -> tuple[bool, int, int]:
    return turn.place
