"""Which control states an evictor takes: those of its cluster, understood, and of a time that can be."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.control import ControlState
from makeway.bus.errors import Malformed
from makeway.bus.signing.signatures import Signatures
from makeway.bus.subjects import Subjects
from makeway.core.policy.mode import Mode
from makeway.evictor.intake.control import keep_to_control
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.metrics import EvictorMetrics
from unit.evictor.building import CLUSTER, NOW

_ROOT = Path(__file__).parents[3]
CASES = json.loads((_ROOT / "bus/testdata/revisions/cases.json").read_text())["cases"]
NOW_MS = int(NOW.timestamp() * 1000)


@dataclass
class Message:
    data: bytes
    sequence: int = 1
    subject: str = Subjects().control


@dataclass
class Following:
    """What is used of the bus: a stream that ends."""

    messages: list[Message]
    subjects: Subjects = field(default_factory=Subjects)
    signatures: Signatures = field(default_factory=Signatures)

    async def follow(
        self, stream: str, *, at_end: Callable[[float], None], **_: Any
    ) -> AsyncIterator[Message]:
        for message in self.messages:
            await asyncio.sleep(0)
            yield message
            for _again in range(3):
                at_end(0.0)


def said(revision: int, mode: Mode = "enforce", cluster_uid: str = CLUSTER) -> bytes:
    state = ControlState(revision=revision, mode=mode, cluster_uid=cluster_uid)
    return codec.wrap(state, "makeway/planner/test", at=NOW)


def read(data: bytes, now: datetime | None) -> ControlState:
    return codec.timely(codec.unwrap_as(data, ControlState)[1], now)


async def after(*messages: bytes) -> tuple[ModeGuard, CollectorRegistry]:
    """What is in force once an evictor has read these messages."""
    stream = [Message(data, sequence) for sequence, data in enumerate(messages, 1)]
    return await following(*stream)


async def following(*stream: Message, clock: Sequence[datetime] = ()) -> tuple[ModeGuard, CollectorRegistry]:
    guard, registry = ModeGuard("enforce"), CollectorRegistry()
    times = iter(clock)
    bus = cast("Bus", Following([*stream]))
    metrics = EvictorMetrics(registry)
    await keep_to_control(
        bus, CLUSTER, guard, metrics, caught_up=asyncio.Event(), now=lambda: next(times, NOW)
    )
    return guard, registry


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_revision_more_than_an_hour_ahead_is_refused_as_by_the_plugin(case: dict[str, Any]) -> None:
    now = datetime.fromisoformat(case["now"])
    data = said(case["revision"])

    if case["refused"]:
        with pytest.raises(Malformed) as refused:
            read(data, now)
        assert refused.value.reason == "future-revision"
    else:
        assert read(data, now).revision == case["revision"]


async def test_a_state_of_the_far_future_switches_nothing_off_and_the_next_is_taken() -> None:
    guard, registry = await after(said(NOW_MS), said(2**63 - 1, "off"))
    assert guard.mode("any") == "enforce"
    refused = registry.get_sample_value("makeway_evictor_control_states_total", {"result": "refused"})
    assert refused == 1

    guard, _ = await after(said(NOW_MS), said(2**63 - 1, "off"), said(NOW_MS + 1, "observe"))
    assert guard.mode("any") == "observe"


async def test_a_state_is_taken_once_the_clock_is_no_longer_behind() -> None:
    behind = NOW - timedelta(hours=2)

    guard, registry = await following(Message(said(NOW_MS, "observe")), clock=(behind, behind))

    assert guard.mode("any") == "observe"
    refused = registry.get_sample_value("makeway_evictor_control_states_total", {"result": "refused"})
    assert refused == 1


async def test_a_state_of_another_cluster_changes_nothing() -> None:
    guard, _ = await after(said(NOW_MS, "observe"), said(NOW_MS + 1, "off", "another"))

    assert guard.mode("any") == "observe"


async def test_a_copy_of_an_older_state_changes_nothing() -> None:
    guard, registry = await after(said(NOW_MS, "off"), said(NOW_MS + 1), said(NOW_MS, "off"))

    assert guard.mode("any") == "enforce"
    refused = registry.get_sample_value("makeway_evictor_control_states_total", {"result": "refused"})
    assert refused == 1


async def test_in_a_stream_that_was_made_anew_a_lower_revision_counts() -> None:
    guard, _ = await following(Message(said(NOW_MS), 9), Message(said(NOW_MS - 1, "observe"), 1))

    assert guard.mode("any") == "observe"


def test_without_a_clock_no_revision_is_judged() -> None:
    assert read(said(2**63 - 1), None).revision == 2**63 - 1
    assert codec.is_ahead(2**63 - 1, datetime.now(UTC))
