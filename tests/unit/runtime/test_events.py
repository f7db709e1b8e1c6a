"""Events are queued and written once each; those that are not are counted, or named in the log."""

import asyncio
import contextlib

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter

from makeway.core.k8s.event import Regarding
from makeway.runtime.events import EventRecorder
from makeway.runtime.kube import ApiUnavailable
from typed_calls import FakeApis

POD = Regarding("v1", "Pod", "shop", "a", "uid-a")
CLASS = Regarding("scheduling.k8s.io/v1", "PriorityClass", "", "steady", "uid-steady")


class Api(FakeApis):
    """Keeps where Events are written, and their reasons; refuses one reason."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, *, body: bytes) -> bytes:
        reason = msgspec.json.decode(body)["reason"]
        if reason == "Refused":
            raise ApiUnavailable("away")
        self.written.append((path, reason))
        return b"{}"


async def written(recorder: EventRecorder) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(recorder.write_forever(), 0.1)


async def test_an_event_is_written_where_its_object_is() -> None:
    api = Api()
    recorder = EventRecorder(api, "makeway.dev/planner", "planner-1")

    recorder.record(POD, "Normal", "Preempted", "Preempting", "by pod uid-b")
    recorder.record(CLASS, "Warning", "ConfigRefused", "Reload", "no number")
    await written(recorder)

    path = "/apis/events.k8s.io/v1/namespaces/{}/events".format
    assert api.written == [(path("shop"), "Preempted"), (path("default"), "ConfigRefused")]


@pytest.mark.parametrize("counted", [True, False])
async def test_events_that_are_not_written_change_nothing(counted: bool) -> None:
    api, registry = Api(), CollectorRegistry()
    dropped = Counter("dropped", "Events.", ["reason"], registry=registry) if counted else None
    recorder = EventRecorder(api, "makeway.dev/evictor", "evictor-1", limit=2, dropped=dropped)

    for reason in ("Refused", "Preempted", "TooMany"):
        recorder.record(POD, "Normal", reason, "Preempting", "")
    await written(recorder)

    assert [reason for _, reason in api.written] == ["Preempted"]
    if counted:
        for reason in ("refused", "queue-full"):
            assert registry.get_sample_value("dropped_total", {"reason": reason}) == 1
