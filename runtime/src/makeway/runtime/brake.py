"""Reading the brake (`makeway.core.policy.brake`): followed, and read anew before an eviction.

The watch says that something has changed, and a GET by name says what: one source of truth, which needs no
order between the two. The GET is a read from the server's storage, not from a cache. One is made after every
change, every `POLL_SECONDS`, and whenever a caller asks for an answer younger than the last one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from makeway.core.k8s.objects import ConfigMap
from makeway.core.policy.brake import CONFIGMAP, RELEASED, Brake, parse_brake
from makeway.runtime.configmaps import configmap_of, read_configmap
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, ObjectReader, Observer
from makeway.runtime.process import until_set

FRESH_SECONDS: Final = 1.0
"""How old an answer may be where an eviction depends on it, counted from when its read began."""

POLL_SECONDS: Final = 10.0
"""Between two reads where nothing is heard, so that a right that was taken away is noticed."""

RETRY_SECONDS: Final = 1.0
"""After a read that failed."""

_log = structlog.get_logger()


class BrakeMetrics:
    """The brake's metrics in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.engaged = Gauge(
            "makeway_brake",
            "What the brake (ConfigMap makeway-brake) holds in this process, by scope: cluster (1 where it "
            "is set everywhere, else 0), namespaces (how many it is set for).",
            ["scope"],
            registry=registry,
        )
        self.reads = Counter(
            "makeway_brake_reads",
            "Reads of the brake by result: ok, failed. Without an answer nothing is evicted.",
            ["result"],
            registry=registry,
        )
        self.show(RELEASED)
        for result in ("ok", "failed"):
            self.reads.labels(result)

    def show(self, brake: Brake) -> None:
        """Show what holds."""
        self.engaged.labels("cluster").set(int(brake.everywhere))
        self.engaged.labels("namespaces").set(len(brake.namespaces))


class BrakeReader:
    """One process's. `current` is the last answer; `RELEASED` before the first, which `unsynced` tells."""

    def __init__(
        self,
        api: ObjectReader,
        metrics: BrakeMetrics,
        observer: Observer,
        *,
        namespace: str,
        timings: ListWatchTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.current: Brake = RELEASED
        self.known = asyncio.Event()
        """Set when it has been read once."""
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._namespace = namespace
        self._where = f"ConfigMap {namespace}/{CONFIGMAP}"
        self._trouble = ""
        self._answered = float("-inf")  # when the read began that gave `current`
        self._reading: asyncio.Task[None] | None = None  # for those who ask, and since when
        self._asked = float("-inf")
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._watch = ListWatch(api, configmap_of(namespace, CONFIGMAP), self, observer, timings)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Have a function called after every change of `current`, and after the first answer."""
        self._listeners.append(listener)

    def unsynced(self) -> str:
        """Return what is missing before anything may be decided; empty where nothing is."""
        return "" if self.known.is_set() else self._trouble or f"{self._where} has not been read yet"

    def unhealthy(self) -> str:
        """Return what stands in the way of reading it, for readiness; empty where nothing does."""
        return self.unsynced() or self._trouble or self._watch.unhealthy()

    async def fresh(self) -> Brake:
        """Return the brake as a read says that began at most `FRESH_SECONDS` before this call.

        With an answer that young it awaits nothing; those who ask meanwhile share one read.

        Raises:
            ApiError, ApiUnavailable: it could not be read.
        """
        asked = self._clock()
        if asked - self._answered <= FRESH_SECONDS:
            return self.current
        reading = self._reading
        if reading is None or reading.done() or asked - self._asked > FRESH_SECONDS:
            reading, self._asked = asyncio.create_task(self._read()), asked
            reading.add_done_callback(_seen)
            self._reading = reading
        await asyncio.shield(reading)
        return self.current

    async def run(self) -> NoReturn:
        """Follow it for ever."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._watch.run())
            parts.create_task(self._poll_forever())
        raise AssertionError("both run for ever")

    # What the list-watch calls: each only means that there is something to read.

    def put(self, item: ConfigMap) -> None:
        """Note that it has changed."""
        self._changed.set()

    def drop(self, item: ConfigMap) -> None:
        """Note that it was deleted."""
        self._changed.set()

    def retain(self, uids: set[str]) -> None:
        """Note that it may be gone."""
        self._changed.set()

    # -------------------------------------------------------------------------------- inner work

    async def _poll_forever(self) -> NoReturn:
        while True:
            self._changed.clear()
            try:
                await self._read()
            except (ApiError, ApiUnavailable):
                pause = RETRY_SECONDS  # told by `_read`
            else:
                pause = POLL_SECONDS
            await until_set(self._changed, pause)

    async def _read(self) -> None:
        began = self._clock()
        try:
            found = await self._get()
        except (ApiError, ApiUnavailable) as error:
            self._metrics.reads.labels("failed").inc()
            trouble = f"{self._where} cannot be read, so nothing is evicted: {error}"
            if trouble != self._trouble:
                _log.error("brake_unreadable", error=str(error))
            self._trouble = trouble
            raise
        self._metrics.reads.labels("ok").inc()
        self._trouble = ""
        if began >= self._answered:  # a slower, older read must not undo a younger one
            self._answered = began
            self._take(found)

    async def _get(self) -> Brake:
        try:
            found = await read_configmap(self._api, self._namespace, CONFIGMAP)
            return RELEASED if found is None else parse_brake(found.data or {})
        except msgspec.DecodeError as error:
            raise ApiUnavailable(f"{self._where}: {error}") from error

    def _take(self, found: Brake) -> None:
        if found == self.current and self.known.is_set():
            return
        before, self.current = self.current, found
        self.known.set()
        self._metrics.show(found)
        if found.engaged:
            _log.warning(
                "brake_set",
                scope=found.scope(),
                since=found.since,
                by=found.by,
                reason=found.reason,
                trouble=found.trouble,
            )
        elif before.engaged:
            _log.warning("brake_released", scope=before.scope())
        for listener in self._listeners:
            listener()


def _seen(task: asyncio.Task[None]) -> None:
    """Keep the loop from reporting an error as lost where all who asked have been cancelled."""
    if not task.cancelled():
        task.exception()
