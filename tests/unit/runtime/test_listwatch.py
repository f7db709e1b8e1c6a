"""Lists, watches, and what comes between: 410, 429, cut bodies, silence, objects that cannot be read."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from makeway.core.k8s.objects import Namespace
from makeway.runtime.kube import AnswerTooLong, ApiError, ApiUnavailable
from makeway.runtime.listwatch import ListWatch, ListWatchTimings, Resource
from makeway.runtime.paging import PAGE_BYTES

QUICK = ListWatchTimings(page_size=2, silence=0.2, pause=0.01, longest_pause=0.05, turn=0)
RESOURCE = Resource("namespaces", "/api/v1/namespaces", Namespace, field_selector="metadata.name!=x")

Step = bytes | Exception | Callable[[], None] | None


def item(name: str, version: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}, **more}


def page(*items: Any, version: int = 10, more: str = "") -> bytes:
    return msgspec.json.encode(
        {
            "kind": "List",
            "metadata": {"resourceVersion": str(version), "continue": more},
            "items": list(items),
        }
    )


def event(kind: str, what: Any) -> bytes:
    return msgspec.json.encode({"type": kind, "object": what})


class FakeApi:
    """Answers lists and watches from a script, in order; notes the queries.

    A watch's script ends the watch where it ends; an Exception is raised there; None is silence. `now`: the
    server's version, which is asked for before a watch goes on.
    """

    def __init__(self, lists: Sequence[bytes | Exception], watches: Sequence[Sequence[Step]]) -> None:
        self.lists = list(lists)
        self.watches = list(watches)
        self.list_queries: list[dict[str, str]] = []
        self.watch_queries: list[dict[str, str]] = []
        self.times: list[float] = []
        self.now = 1000

    async def request(
        self, method: str, path: str, *, query: Any = None, most_bytes: int | None = None, **_: object
    ) -> bytes:
        assert (method, path, most_bytes) == ("GET", RESOURCE.path, PAGE_BYTES)
        if query and query["limit"] == "1" and self.watch_queries:
            return page(version=self.now)
        self.times.append(time.monotonic())
        self.list_queries.append(dict(query))
        answer = self.lists.pop(0) if self.lists else ApiUnavailable("script is over")
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle_timeout_seconds: float
    ) -> AsyncIterator[list[bytes]]:
        assert path == RESOURCE.path
        self.times.append(time.monotonic())
        self.watch_queries.append(dict(query))
        if not self.watches:
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if step is None:
                await asyncio.sleep(idle_timeout_seconds)
                raise ApiUnavailable("timed out")
            if isinstance(step, Exception):
                raise step
            if isinstance(step, bytes):
                yield [step] if step else []
            else:
                step()


class Seen:
    """A handler and observer that keeps everything."""

    def __init__(self) -> None:
        self.items: dict[str, str] = {}
        self.lists: list[str] = []
        self.restarts: list[str] = []
        self.unreadable = 0

    def put(self, item: Namespace) -> None:
        self.items[item.metadata.uid] = item.metadata.resource_version

    def drop(self, item: Namespace) -> None:
        self.items.pop(item.metadata.uid, None)

    def retain(self, uids: set[str]) -> None:
        self.items = {uid: version for uid, version in self.items.items() if uid in uids}

    def listed(self, resource: str, reason: str) -> None:
        self.lists.append(reason)

    def reconnected(self, resource: str, reason: str) -> None:
        self.restarts.append(reason)

    def undecodable(self, resource: str) -> None:
        self.unreadable += 1


async def play(api: FakeApi, timings: ListWatchTimings = QUICK) -> tuple[Seen, ListWatch[Namespace]]:
    """Run until the scripts are over and the last watch waits."""
    seen = Seen()
    listwatch = ListWatch(api, RESOURCE, seen, seen, timings)
    scripted = len(api.watches)
    task = asyncio.create_task(listwatch.run())
    async with asyncio.timeout(5):
        while len(api.watch_queries) <= scripted:
            await asyncio.sleep(0.005)
            if task.done():
                await task
    task.cancel()
    return seen, listwatch


async def test_pages_are_read_to_the_end_and_the_watch_goes_on_from_their_version() -> None:
    api = FakeApi(
        [page(item("a", 1), item("b", 2), more="next"), page(item("c", 3), version=10)],
        [[event("ADDED", item("d", 11)), event("DELETED", item("a", 12)), event("MODIFIED", item("b", 13))]],
    )

    seen, listwatch = await play(api)

    assert seen.items == {"uid-b": "13", "uid-c": "3", "uid-d": "11"}
    assert api.list_queries == [
        {"limit": "2", "fieldSelector": "metadata.name!=x"},
        {"limit": "2", "fieldSelector": "metadata.name!=x", "continue": "next"},
    ]
    assert [query["resourceVersion"] for query in api.watch_queries] == ["10", "13"]
    assert api.watch_queries[0]["allowWatchBookmarks"] == "true"
    assert listwatch.synced.is_set()
    assert listwatch.unhealthy() == ""


async def test_it_is_not_synced_before_the_list_is_complete() -> None:
    api = FakeApi([ApiUnavailable("refused")], [])
    seen = Seen()
    listwatch = ListWatch(api, RESOURCE, seen, seen, QUICK)
    task = asyncio.create_task(listwatch.run())
    await asyncio.sleep(0.02)
    task.cancel()

    assert not listwatch.synced.is_set()
    assert listwatch.unhealthy()


async def test_a_bookmark_moves_the_version_on() -> None:
    api = FakeApi([page(item("a", 1))], [[event("BOOKMARK", {"metadata": {"resourceVersion": "50"}})]])

    await play(api)

    assert api.watch_queries[1]["resourceVersion"] == "50"


async def test_its_version_says_how_far_it_has_come() -> None:
    seen = Seen()
    unlisted = ListWatch(FakeApi([], []), RESOURCE, seen, seen, QUICK)
    _, listed = await play(FakeApi([page(item("a", 1), version=10)], []))
    _, followed = await play(FakeApi([page(item("a", 1), version=10)], [[event("ADDED", item("b", 20))]]))

    assert [unlisted.version, listed.version, followed.version] == [0, 10, 20]


@pytest.mark.parametrize(
    "gone",
    [
        event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
        ApiError(410, "Expired", "too old"),
    ],
)
async def test_an_expired_version_means_a_new_list_that_forgets_what_is_gone(gone: Step) -> None:
    api = FakeApi([page(item("a", 1), item("b", 1)), page(item("b", 5), version=60)], [[gone]])

    seen, _ = await play(api)

    assert seen.items == {"uid-b": "5"}
    assert seen.lists == ["initial", "expired"]
    assert api.watch_queries[1]["resourceVersion"] == "60"


async def test_pages_that_expire_are_read_again_in_pages() -> None:
    api = FakeApi(
        [page(item("a", 1), more="next"), ApiError(410, "Expired", "continue"), page(item("b", 2))], []
    )

    seen, _ = await play(api)

    assert seen.items == {"uid-b": "2"}
    assert api.list_queries[2] == api.list_queries[0]


async def test_a_page_that_is_too_long_is_read_with_half_as_many_objects() -> None:
    api = FakeApi([AnswerTooLong("too long"), page(item("a", 1), more="next"), page(item("b", 2))], [])

    seen, _ = await play(api)

    assert seen.items == {"uid-a": "1", "uid-b": "2"}
    assert [query["limit"] for query in api.list_queries] == ["2", "1", "2"]


async def test_a_cut_watch_goes_on_from_the_last_event() -> None:
    api = FakeApi(
        [page(item("a", 1))], [[event("MODIFIED", item("a", 20)), ApiUnavailable("ended inside a line")]]
    )

    seen, _ = await play(api)

    assert seen.lists == ["initial"]
    assert seen.restarts == ["silent-or-cut"]
    assert api.watch_queries[1]["resourceVersion"] == "20"


async def test_a_server_that_has_not_come_as_far_was_restored_and_is_listed_anew() -> None:
    api = FakeApi(
        [page(item("a", 1), item("b", 2), version=500), page(item("a", 3), version=30)],
        [[ApiUnavailable("cut")]],
    )
    api.now = 30

    def goes_on() -> None:
        api.now = 31

    api.watches.append([goes_on, event("MODIFIED", item("a", 31))])

    seen, _ = await play(api)

    assert seen.lists == ["initial", "set-back"]
    assert seen.items == {"uid-a": "31"}
    assert [query["resourceVersion"] for query in api.watch_queries] == ["500", "30", "31"]


async def test_silence_is_taken_for_a_dead_connection() -> None:
    api = FakeApi([page(item("a", 1))], [[None], [event("MODIFIED", item("a", 30))]])

    seen, _ = await play(api)

    assert seen.items == {"uid-a": "30"}
    assert seen.restarts[0] == "silent-or-cut"


async def test_a_watch_that_stands_again_is_healthy_before_anything_happens() -> None:
    told: list[str] = []
    api = FakeApi([page()], [[ApiUnavailable("cut")]])
    watch = ListWatch(api, RESOURCE, Seen(), Seen(), QUICK)

    def note() -> None:
        told.append(watch.unhealthy())

    over = asyncio.Event()
    api.watches.append([note, b"", note, over.set])
    running = asyncio.create_task(watch.run())
    async with asyncio.timeout(5):
        await over.wait()
    running.cancel()

    assert told == ["namespaces: cut", ""]


async def test_a_throttled_watch_waits_as_long_as_the_server_says() -> None:
    api = FakeApi([page()], [[ApiError(429, "TooManyRequests", "slow down", 0.3)]])

    seen, _ = await play(api)

    assert seen.restarts == ["throttled"]
    assert api.times[2] - api.times[1] >= 0.3


async def test_pauses_grow_and_stay_below_the_longest() -> None:
    api = FakeApi([ApiUnavailable("refused")] * 6 + [page()], [])

    await play(api)

    pauses = [after - before for before, after in zip(api.times, api.times[1:], strict=False)]
    assert pauses[0] < 0.045
    assert all(0.024 <= pause < 0.2 for pause in pauses[3:6])


@pytest.mark.parametrize(
    ("lists", "watches"),
    [(1, [[]] * 4), (6, [[event("ERROR", {"code": 410})]] * 5)],
    ids=["refused at once", "every version expired"],
)
async def test_a_watch_that_ends_at_once_every_time_does_not_spin(
    lists: int, watches: list[list[Step]]
) -> None:
    api = FakeApi([page(version=version) for version in range(1, lists + 1)], watches)

    await play(api)

    assert api.times[-1] - api.times[1] > 0.04


async def test_an_object_that_cannot_be_read_costs_only_itself() -> None:
    broken = {"metadata": {"name": "x", "uid": "uid-x", "resourceVersion": "7", "labels": 5}}
    api = FakeApi(
        [page(item("a", 1), broken)],
        [[event("MODIFIED", {**broken, "metadata": {**broken["metadata"], "resourceVersion": "70"}})]],
    )

    seen, _ = await play(api)

    assert seen.items == {"uid-a": "1"}
    assert seen.unreadable == 2
    assert api.watch_queries[1]["resourceVersion"] == "70"


async def test_a_list_does_not_forget_an_object_that_it_cannot_read() -> None:
    broken = {"metadata": {"name": "a", "uid": "uid-a", "resourceVersion": "7", "labels": 5}}
    api = FakeApi([page(item("a", 1)), page(broken)], [[event("ERROR", {"code": 410})]])

    seen, _ = await play(api)

    assert seen.items == {"uid-a": "1"}


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"\xff\xfe",
        event("ERROR", {"code": 500, "message": "etcd"}),
        event("ERROR", [1]),
        event("BOOKMARK", {}),
        event("MODIFIED", 5),
    ],
)
async def test_a_line_that_makes_no_sense_means_a_new_list(line: bytes) -> None:
    api = FakeApi([page(item("a", 1)), page(item("b", 2))], [[line]])

    seen, _ = await play(api)

    assert seen.items == {"uid-b": "2"}
    assert seen.lists == ["initial", "error"]


async def test_a_list_that_makes_no_sense_is_tried_again() -> None:
    seen, _ = await play(FakeApi([b"<html>", page(item("a", 1))], []))

    assert seen.items == {"uid-a": "1"}


async def test_other_tasks_get_their_turn_while_a_long_list_is_read() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await play(FakeApi([page(*(item(f"n{number}", 1) for number in range(200)))], []))
    task.cancel()

    assert turns >= 100


async def test_age_is_counted_from_what_was_last_heard() -> None:
    _, listwatch = await play(FakeApi([page()], [[event("BOOKMARK", item("", 9))]]))

    await asyncio.sleep(0.03)

    assert 0.03 <= listwatch.age_seconds() < 1


async def test_what_the_first_list_leaves_behind_is_set_aside_and_what_later_lists_do_is_not() -> None:
    class Keeps(Seen):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[list[str]] = []

        def put(self, item: Namespace) -> None:
            self.kept.append([item.metadata.uid])

    api = FakeApi([page(*(item(f"n-{number}", number) for number in range(500)))] * 2, [])
    listwatch = ListWatch(api, RESOURCE, Keeps(), Seen(), QUICK)
    try:
        before = gc.get_freeze_count()
        await listwatch.list_once()
        first = gc.get_freeze_count()
        await listwatch.list_once()
        assert first >= before + 500
        assert gc.get_freeze_count() <= first
    finally:
        gc.unfreeze()


async def test_watches_that_are_accepted_and_bring_nothing_are_trouble() -> None:
    quick = ListWatchTimings(page_size=2, silence=0.05, pause=0.001, longest_pause=0.002, turn=0)
    api = FakeApi([page()], [[b"", None], [b"", None], [b"", None], [b""]])

    _, listwatch = await play(api, quick)
    assert "its watches have brought nothing for" in listwatch.unhealthy()

    patient = ListWatchTimings(page_size=2, silence=1, pause=0.001, longest_pause=0.002, turn=0)
    api = FakeApi([page()], [[b"", event("BOOKMARK", item("", 11)), None], [event("BOOKMARK", item("", 12))]])
    _, listwatch = await play(api, patient)
    assert "brought nothing" not in listwatch.unhealthy()
