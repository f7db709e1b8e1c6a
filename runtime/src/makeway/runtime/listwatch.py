"""Following one kind of Kubernetes objects: a paged list, then a watch, for as long as the process lives.

What client-go's reflector does, with the time-outs that kubernetes-asyncio's watch lacks:

* lists in pages of bounded length, whose objects are decoded one by one as they are handed on: one bad
  object costs only itself, and the memory of one serves the next;
* watches with bookmarks, and goes on from the last version seen;
* 410, and an ERROR event, mean a new list, whose end says which objects are gone; so does a server that has
  not come as far as the last version seen, as after its storage was restored: it would send nothing yet;
* silence for longer than bookmarks are apart is taken for a dead connection;
* failures are retried with growing, jittered pauses; a server's Retry-After is honoured;
* the event loop gets its turn after half a millisecond.

Until the first list is complete `synced` is not set; `age_seconds` says how long nothing was heard.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import msgspec
import structlog

from makeway.core.k8s.by_uid import MetadataObject
from makeway.core.k8s.objects import View
from makeway.core.k8s.resource_version import version_of
from makeway.runtime import garbage
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.pages import DECODE_ERRORS, Page, PageMetadata, UnreadableObject
from makeway.runtime.paging import PAGE_BYTES, PAGE_OBJECTS, Paging

_log = structlog.get_logger()


T = TypeVar("T", bound=MetadataObject)
O = TypeVar("O")  # noqa: E741 - an event's object
T_contra = TypeVar("T_contra", bound=MetadataObject, contravariant=True)


class ObjectReader(Protocol):
    """What is used of `makeway.runtime.kube.Api`."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        timeout_seconds: float = 10.0,
        most_bytes: int | None = None,
    ) -> bytes:
        """Send a request; raises ApiError, AnswerTooLong or ApiUnavailable."""

    def stream(
        self, path: str, *, query: Mapping[str, str], idle_timeout_seconds: float
    ) -> AsyncIterator[Sequence[bytes]]:
        """Yield no lines once a watch stands, then what has come; raises ApiError or ApiUnavailable."""


class Handler(Protocol[T_contra]):
    """Where the objects go. Nothing of it awaits; each call is short."""

    def put(self, item: T_contra) -> None:
        """Take an object, new or changed; the same version may come twice."""

    def drop(self, item: T_contra) -> None:
        """Forget an object that was deleted or left the selection, in its last known form."""

    def retain(self, uids: set[str]) -> None:
        """Forget every object but these: a list is complete."""


class Observer(Protocol):
    """Counts what happens; called with the resource's name."""

    def listed(self, resource: str, reason: str) -> None:
        """Count a completed list. reason: initial, expired (410), set-back, error (an event that says so)."""

    def reconnected(self, resource: str, reason: str) -> None:
        """Count a watch that ended, or cannot go on.

        reason: ended, silent-or-cut, throttled, refused, expired, set-back, error.
        """

    def undecodable(self, resource: str) -> None:
        """Count an object that could not be read and was passed over."""


@dataclass(frozen=True, kw_only=True)
class ListWatchTimings:
    """How patient a list-watch is. All in seconds, but `page_size`.

    page_size: objects a list request asks for at the most.
    list: for one page.
    watch: a watch is asked to end after this and up to twice as long, so that load spreads over servers.
    silence: bookmarks come about every minute; after so long without anything a connection is dead.
    pause, longest_pause: the first pause after a failure, and the longest; each is jittered by half.
    turn: how long objects are worked on before other tasks get a turn; a request takes a few turns.
    """

    page_size: int = PAGE_OBJECTS
    list: float = 30.0
    watch: float = 300.0
    silence: float = 100.0
    pause: float = 0.25
    longest_pause: float = 30.0
    turn: float = 0.0005


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind of objects: its name in metrics and logs, its path, its type, and which of them.

    `closer`: returns an object of a watch event as it is, or read from the event's text as more than `type`.
    """

    name: str
    path: str
    type: type[T]
    field_selector: str = ""
    closer: Callable[[T, bytes], T] = lambda item, _: item


class _Event(View, Generic[O], frozen=True, gc=False):
    type: str
    object: O


class _BareMetadata(View, frozen=True, gc=False):
    uid: str = ""
    resource_version: str = ""


class _Versioned(View, frozen=True, gc=False):
    """As little as can be asked of an object that cannot be read otherwise."""

    metadata: _BareMetadata


class _Problem(View, frozen=True, gc=False):
    """metav1.Status, as ERROR events carry it."""

    code: int = 0
    reason: str = ""
    message: str = ""


_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_NO_EVENT: _Event[Any] = _Event(type="", object=None)

_decode_event = msgspec.json.Decoder(_Event[msgspec.Raw]).decode
_decode_versioned = msgspec.json.Decoder(_Versioned).decode
_decode_problem = msgspec.json.Decoder(_Problem).decode


class _Relist(Exception):  # noqa: N818 - not an error, a turn that the loop takes
    """The watch cannot go on from where it is."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class ListWatch(Generic[T]):
    """One resource's list-watch. `synced` is set when the first list is complete."""

    def __init__(
        self,
        api: ObjectReader,
        resource: Resource[T],
        handler: Handler[T],
        observer: Observer,
        timings: ListWatchTimings | None = None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._api = api
        self._handler = handler
        self._observer = observer
        self._timings = timings or ListWatchTimings()
        self._decode = msgspec.json.Decoder(resource.type).decode
        self._decode_event = msgspec.json.Decoder(_Event[resource.type]).decode  # type: ignore[name-defined]
        self._version = ""
        self._heard = time.monotonic()
        self._fed = time.monotonic()
        self._failures = 0
        self._trouble = ""
        self._reason = "initial"

    def age_seconds(self) -> float:
        """Return how long ago the server was last heard: a list, an event or a bookmark."""
        return time.monotonic() - self._heard

    @property
    def version(self) -> int:
        """Up to which resourceVersion every change has been handed on; 0 while that is not known."""
        return version_of(self._version)

    def unhealthy(self) -> str:
        """Return what stands in the way of fresh objects, for readiness; empty where nothing does."""
        if not self.synced.is_set():
            return self._trouble or f"no list of {self.resource.name} yet"
        quiet = time.monotonic() - self._fed
        if not self._trouble and quiet > 2 * self._timings.silence:
            # Watches are accepted, and bring nothing: not even the bookmarks that come every minute.
            return f"{self.resource.name}: its watches have brought nothing for {quiet:.0f} s"
        return self._trouble

    async def run(self) -> NoReturn:
        """List, then watch, for ever. Every failure is retried; only cancellation ends it.

        No loop for tenacity: what failed decides whether to list or to watch next, and news resets the pause.
        """
        while True:
            try:
                if self._version:
                    await self._check_version()
                else:
                    await self._list()
                await self._watch()
            except _Relist as relist:
                await self._start_over(relist.reason, str(relist))
            except ApiError as error:
                if error.status == 410:
                    await self._start_over("expired", str(error))
                else:
                    await self._failed(_kind(error), str(error), error.retry_after_seconds)
            except ApiUnavailable as error:
                await self._failed("silent-or-cut", str(error), None)

    # -------------------------------------------------------------------------------- listing

    async def list_once(self) -> None:
        """Read all there is and hand it on, without watching. Raises ApiError, ApiUnavailable."""
        await self._list()

    async def _list(self) -> None:
        """Read all pages and hand them on; then let the handler forget what was not in them."""
        try:
            uids, metadata = await self._pages()
        except ApiError as error:
            if error.status != 410:
                raise
            # The pages' version is gone from the server: once more, and in pages, which bound the memory.
            uids, metadata = await self._pages()
        self._handler.retain(uids)
        self._fed = time.monotonic()
        self._version = metadata.resource_version
        self._trouble = ""
        self.synced.set()
        self._observer.listed(self.resource.name, self._reason)
        _log.info("listed", resource=self.resource.name, objects=len(uids), resource_version=self._version)

    async def _pages(self) -> tuple[set[str], PageMetadata]:
        """Read all pages and hand them on; return the UIDs of their objects, and the list's version."""
        uids: set[str] = set()
        paging = Paging(self._ask, self._timings.page_size)
        token = ""
        while True:
            metadata = await self._page(await paging.page(token), uids)
            self._hear()
            if not self.synced.is_set():
                garbage.keep()
            if not metadata.continue_:
                return uids, metadata
            token = metadata.continue_

    async def _ask(self, query: Mapping[str, str]) -> bytes:
        return await self._api.request(
            "GET",
            self.resource.path,
            query={**query, **self._selection()},
            timeout_seconds=self._timings.list,
            most_bytes=PAGE_BYTES,
        )

    async def _check_version(self) -> None:
        """Ask how far the server has come. Raises _Relist where that is not as far as was seen before."""
        try:
            there = Page(await self._ask({"limit": "1"})).metadata.resource_version
        except DECODE_ERRORS as error:
            raise ApiUnavailable(f"list of {self.resource.name}: {error}") from error
        if version_of(there) < self.version:
            raise _Relist("set-back", f"the server is at {there}, behind {self._version}")

    async def _page(self, body: bytes, uids: set[str]) -> PageMetadata:
        """Hand the objects of a page on; note their UIDs."""
        put, now = self._handler.put, time.monotonic
        ends = now() + self._timings.turn
        try:
            page = Page(body)
            for item in page.objects(self._decode):
                if isinstance(item, UnreadableObject):
                    # What cannot be read must not be forgotten either.
                    self._pass_over(item.error)
                    uids.update(_uid(item.text))
                else:
                    uids.add(item.metadata.uid)
                    put(item)
                if now() >= ends:
                    await asyncio.sleep(0)
                    ends = now() + self._timings.turn
        except DECODE_ERRORS as error:
            raise ApiUnavailable(f"list of {self.resource.name}: {error}") from error
        return page.metadata

    # -------------------------------------------------------------------------------- watching

    async def _watch(self) -> None:
        """Follow changes from the last version seen until the watch ends."""
        seconds = self._timings.watch * (1 + random.random())
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, int(seconds))),
            **self._selection(),
        }
        began = time.monotonic()
        heard = self._api.stream(self.resource.path, query=query, idle_timeout_seconds=self._timings.silence)
        count = 0
        async with aclosing(heard) as events:  # type: ignore[type-var] # the edge returns an async generator
            async for lines in events:
                self._hear()
                self._trouble = ""
                # Others had their turn while nothing came: an event that comes alone needs no turn more.
                ends = self._heard + self._timings.turn
                for line in lines:
                    self._apply(line)
                    self._fed = self._heard
                    self._failures = 0
                    count += 1
                    if time.monotonic() >= ends:
                        await asyncio.sleep(0)
                        ends = time.monotonic() + self._timings.turn
        self._observer.reconnected(self.resource.name, "ended")
        if count == 0 and time.monotonic() - began < 1:
            # A server that ends watches at once would otherwise be asked in a tight loop.
            await self._pause(None)

    def _apply(self, line: bytes) -> None:
        """Apply an event; nearly all are read together with their object, in one go."""
        try:
            event: _Event[T] = self._decode_event(line)
        except DECODE_ERRORS:
            event = _NO_EVENT
        if event.type in _CHANGES:
            self._hand_on(event.type, self.resource.closer(event.object, line))
        else:
            self._apply_in_steps(line)

    def _apply_in_steps(self, line: bytes) -> None:
        """Apply an event whose object may be of another type, or not readable."""
        try:
            event = _decode_event(line)
        except DECODE_ERRORS as error:
            raise _Relist("error", f"not a watch event: {error}") from error
        if event.type == "ERROR":
            self._raise(event.object)
        if event.type == "BOOKMARK":
            self._move_on(event.object)
            return
        try:
            item = self._decode(event.object)
        except DECODE_ERRORS as error:
            self._pass_over(error)
            self._move_on(event.object)
        else:
            self._hand_on(event.type, item)

    def _hand_on(self, type_: str, item: T) -> None:
        if type_ == "DELETED":
            self._handler.drop(item)
        else:
            self._handler.put(item)
        self._version = item.metadata.resource_version

    def _move_on(self, raw: msgspec.Raw) -> None:
        try:
            self._version = _decode_versioned(raw).metadata.resource_version or self._version
        except msgspec.DecodeError as error:
            raise _Relist("error", f"an event without a version: {error}") from error

    def _raise(self, raw: msgspec.Raw) -> NoReturn:
        try:
            problem = _decode_problem(raw)
        except msgspec.DecodeError as error:
            raise _Relist("error", f"an error that cannot be read: {error}") from error
        reason = "expired" if problem.code == 410 else "error"
        raise _Relist(reason, f"{problem.code} {problem.reason}: {problem.message}")

    # -------------------------------------------------------------------------------- both

    def _pass_over(self, error: Exception) -> None:
        self._observer.undecodable(self.resource.name)
        _log.warning("object_undecodable", resource=self.resource.name, error=str(error))

    def _selection(self) -> dict[str, str]:
        return {"fieldSelector": self.resource.field_selector} if self.resource.field_selector else {}

    def _hear(self) -> None:
        self._heard = time.monotonic()

    async def _start_over(self, reason: str, detail: str) -> None:
        """Ask for a new list: at once the first time, after a pause where that did not help."""
        self._version = ""
        self._reason = reason
        self._observer.reconnected(self.resource.name, reason)
        _log.info("watch_restarted", resource=self.resource.name, reason=reason, detail=detail)
        if self._failures or reason != "expired":
            await self._pause(None)
        else:
            self._failures = 1

    async def _failed(self, reason: str, detail: str, retry_after_seconds: float | None) -> None:
        """Note a failure and wait; then go on from the version that is known."""
        self._observer.reconnected(self.resource.name, reason)
        self._trouble = f"{self.resource.name}: {detail}"
        _log.warning("list_watch_failed", resource=self.resource.name, reason=reason, error=detail)
        await self._pause(retry_after_seconds)

    async def _pause(self, retry_after_seconds: float | None) -> None:
        longest = min(self._timings.pause * 2.0 ** min(self._failures, 16), self._timings.longest_pause)
        self._failures += 1
        # Half to whole: many watchers of one server must not come back in step.
        jittered = longest * (0.5 + random.random() / 2)
        await asyncio.sleep(max(jittered, retry_after_seconds or 0.0))


def _kind(error: ApiError) -> str:
    if error.status == 429:
        return "throttled"
    return "error" if error.status >= 500 else "refused"


def _uid(raw: msgspec.Raw) -> set[str]:
    try:
        return {_decode_versioned(raw).metadata.uid}
    except msgspec.DecodeError:
        return set()
