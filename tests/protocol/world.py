"""What all parts of a simulation share: time, chance, the trace, and the network with its faults."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import structlog

from protocol.loop import START, Process, VirtualLoop

T = TypeVar("T")


class UnansweredError(Exception):
    """A request had no answer in time; its effect is unknown."""


class ViolationError(Exception):
    """An invariant does not hold."""


@dataclass
class Faults:
    """How likely each mishap is at one request, while faults are on."""

    kill: float = 0.0
    stop: float = 0.0
    lose_request: float = 0.0
    lose_answer: float = 0.0
    delay: float = 0.0
    refuse: float = 0.0
    repeat: float = 0.0


@dataclass
class Ambush:
    """A mishap at one certain request of a kind of process; of an evictor, with an order in hand.

    kill, stop: right after it is sent, or answered. disturb: as stop, and its order's preemptor or victims
    are deleted meanwhile. deafen: it is carried out, and nothing is heard of the server for a while. wipe: it
    is carried out, then the process is killed and the streams are lost. forget: so is every scheduler.
    freeze: of kind `order`, where a planner stores one: the leader of the stream is stopped, and others lost.
    """

    kind: str
    left: int
    action: str
    seconds: float
    when: str
    order_id: str = ""


@dataclass
class World:
    """One simulation's. `faults` are those of now; none once they have ended."""

    seed: int
    loop: VirtualLoop
    rng: random.Random
    faults: Faults = field(default_factory=Faults)
    faulty: bool = True
    lines: list[tuple[float, str, str]] = field(default_factory=list)
    cut: dict[tuple[str, str], float] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    injected: dict[str, int] = field(default_factory=dict)
    kill: Callable[[Process], None] = lambda _: None
    wipe: Callable[[], None] = lambda: None
    disturb: Callable[[str], None] = lambda _: None
    forget: Callable[[], None] = lambda: None
    fail_over: Callable[[], None] = lambda: None
    frozen_until: float = 0.0
    """Until when the leader of the stream of orders is stopped: what it is sent waits for it, in order."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    ambushes: list[Ambush] = field(default_factory=list)

    def now(self) -> datetime:
        """The true time."""
        return START + timedelta(seconds=round(self.loop.virtual, 6))

    def note(self, actor: str, text: str) -> None:
        """Write a line of the trace."""
        self.lines.append((self.loop.virtual, actor, text))

    def trace(self) -> str:
        """The trace as text."""
        return "".join(f"{at:10.4f} {actor:<14} {text}\n" for at, actor, text in self.lines)

    def chance(self, probability: float, what: str) -> bool:
        """Whether a mishap happens; counted."""
        if not self.faulty or not probability or self.rng.random() >= probability:
            return False
        self.injected[what] = self.injected.get(what, 0) + 1
        return True

    def count(self, what: str) -> None:
        """Count a mishap that was planned."""
        self.injected[what] = self.injected.get(what, 0) + 1

    def is_cut(self, process: str, server: str) -> bool:
        """Whether a process cannot reach a server now."""
        return self.cut.get((process, server), 0.0) > self.loop.virtual

    def latency(self) -> float:
        """How long a message is under way."""
        if self.chance(self.faults.delay, "delayed"):
            return self.rng.uniform(0.05, 3.0)
        return self.rng.uniform(0.0005, 0.01)

    def strike(self, process: Process) -> None:
        """Perhaps kill or stop a process here."""
        if self.chance(self.faults.kill, "killed"):
            self.note(process.identity, "is killed")
            self.kill(process)
        elif self.chance(self.faults.stop, "stopped"):
            seconds = self.rng.choice((0.5, 3.0, 8.0, 13.0, 25.0))
            self.note(process.identity, f"is stopped for {seconds} s")
            process.stop(seconds)

    def freeze(self, seconds: float) -> None:
        """Stop the leader of the stream of orders for a while."""
        self.frozen_until = self.loop.virtual + seconds
        self.loop.call_later(seconds, self.thaw)

    def thaw(self) -> None:
        """Let it take what it was sent meanwhile."""
        self.frozen_until = 0.0
        waiting, self.waiting = self.waiting, []
        for arrive in waiting:
            self.loop.call_soon(arrive)

    def _ambushed(self, process: Process, server: str, *, stores_order: bool) -> Ambush | None:
        """The ambush that this request runs into."""
        if not self.faulty or not self.ambushes:
            return None
        kind = process.name.partition("-")[0]
        if kind == "evictor" and "order_id" not in structlog.contextvars.get_contextvars():
            return None
        if kind == "scheduler" and server != "nats":
            return None
        for ambush in self.ambushes:
            if ambush.kind == kind or (ambush.kind == "order" and stores_order):
                ambush.left -= 1
                if not ambush.left:
                    self.ambushes.remove(ambush)
                    ambush.order_id = str(structlog.contextvars.get_contextvars().get("order_id", ""))
                    return ambush
        return None

    def _spring(self, ambush: Ambush | None, when: str, process: Process, server: str) -> None:
        if ambush is None or ambush.when != when:
            return
        self.count(f"ambushed: {ambush.action}")
        self.note(process.identity, f"is ambushed: {ambush.action} {ambush.seconds} s")
        if ambush.action in ("stop", "disturb"):
            process.stop(ambush.seconds)
            if ambush.action == "disturb":
                self.disturb(ambush.order_id)
        elif ambush.action == "freeze":
            self.freeze(ambush.seconds)
            self.fail_over()
        elif ambush.action == "deafen":
            self.cut[process.name, server] = self.loop.virtual + ambush.seconds
        else:
            self.kill(process)
            if ambush.action in ("wipe", "forget"):
                self.wipe()
            if ambush.action == "forget":
                self.forget()

    async def request(
        self,
        process: Process,
        server: str,
        act: Callable[[], T],
        timeout_seconds: float,
        *,
        counted: bool = True,
        stores_order: bool = False,
    ) -> T:
        """One request to a server, at which `act` is done; its error is raised here.

        It may be lost on either way. The process may be killed or stopped once it is sent, and when the
        answer comes. `counted`: whether it may be one that an ambush waits for.
        """
        await process.run_on()
        answer: asyncio.Future[T] = self.loop.create_future()
        lost = self.chance(self.faults.lose_request, "requests lost")
        unheard = not lost and self.chance(self.faults.lose_answer, "answers lost")
        ambush = self._ambushed(process, server, stores_order=stores_order) if counted else None
        connection = self.restarts.get(server, 0)

        def arrive() -> None:
            # What was under way to a server that has restarted since was on a connection that broke.
            if lost or self.is_cut(process.name, server) or connection != self.restarts.get(server, 0):
                return
            if stores_order and self.loop.virtual < self.frozen_until:
                self.waiting.append(arrive)
                return
            error: Exception | None = None
            result: Any = None
            try:
                result = act()
            except ViolationError:
                raise
            except Exception as raised:  # noqa: BLE001 - what a server answers, an error too
                error = raised
            self._spring(ambush, "done", process, server)
            if not unheard:
                self.loop.call_later(self.latency(), deliver, result, error)

        def deliver(result: Any, error: Exception | None) -> None:
            if answer.done() or self.is_cut(process.name, server):
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        def expire() -> None:
            if not answer.done():
                answer.set_exception(UnansweredError())

        self.loop.call_later(self.latency(), arrive)
        timer = self.loop.call_later(timeout_seconds, expire)
        self._spring(ambush, "sent", process, server)
        self.strike(process)
        try:
            return await answer
        finally:
            timer.cancel()
            if process.alive and answer.done() and not answer.cancelled():
                self._spring(ambush, "answered", process, server)
                self.strike(process)
            await process.run_on()
