"""Questions of a scheduler that has read more outcomes than the planner: they wait, others do not."""

import asyncio
import dataclasses
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from makeway.bus import codec
from makeway.bus.messages import StreamPosition
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.service import handler
from makeway.planner.service.searches import pod_search
from unit.planner import test_group_service, test_service
from unit.planner.building import make_pod, make_snapshot

MADE = "2026-01-30T08:15:00.123456789Z"
BEHIND = StreamPosition(created=MADE, sequence=511)
SEEN = StreamPosition(created=MADE, sequence=512)
BENCHES = (test_service.Bench, test_group_service.Bench)


@pytest.fixture(params=BENCHES, ids=("pods", "groups"))
def bench(request: pytest.FixtureRequest) -> Any:
    made = request.param()
    made.ledger.outcomes_read = BEHIND
    return made


async def test_a_question_waits_for_the_outcome_that_its_scheduler_has_read(bench: Any) -> None:
    asking = asyncio.create_task(bench.ask(outcomes_read=SEEN, timeout_milliseconds=60_000))
    await asyncio.sleep(0.05)
    assert not asking.done()

    bench.ledger.outcomes_read = SEEN

    async with asyncio.timeout(20):
        assert (await asking).status == "candidates"


async def test_it_holds_up_no_other(bench: Any) -> None:
    waiting = asyncio.create_task(bench.ask(outcomes_read=SEEN, timeout_milliseconds=60_000))
    await asyncio.sleep(0.01)

    async with asyncio.timeout(20):
        assert (await bench.ask(outcomes_read=BEHIND)).status == "candidates"
        assert (await bench.ask()).status == "candidates"
    assert not waiting.done()
    waiting.cancel()


async def test_it_is_planned_for_after_a_while_if_the_outcome_is_never_read(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "LONGEST_WAIT_SECONDS", 0.05)

    async with asyncio.timeout(20):
        assert (await bench.ask(outcomes_read=SEEN, timeout_milliseconds=2**62)).status == "candidates"


async def test_an_outcome_of_a_stream_that_was_made_anew_is_not_waited_for(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "LONGEST_WAIT_SECONDS", 30.0)
    anew = StreamPosition(created="2026-01-30T08:15:00.123456788Z", sequence=2**62)

    async with asyncio.timeout(20):
        assert (await bench.ask(outcomes_read=anew, timeout_milliseconds=90_000)).status == "candidates"


async def test_a_refusal_without_the_outcome_is_not_final() -> None:
    bench = test_service.Bench(make_snapshot(["n1"], [make_pod("a", "n1", 1000)]))
    bench.ledger.outcomes_read = BEHIND

    unread, read = await bench.ask(outcomes_read=SEEN), await bench.ask(outcomes_read=BEHIND)

    assert (unread.status, read.status) == ("refused", "refused")
    assert unread.refusal is not None
    assert read.refusal is not None
    assert unread.refusal.retry_at is not None
    assert read.refusal.retry_at is None


async def test_questions_about_pods_are_planned_for_one_at_a_time_as_they_came() -> None:
    """A plan keeps what it works out for the next: two at a time would each see half of the other's."""
    bench, steps = test_service.Bench(), list[int]()
    search = pod_search(bench.snapshot, bench.ledger, bench.metrics)

    def planning(question: Question, now: datetime) -> Iterator[Plan | PlanRefusal | None]:
        number = len(set(steps))
        for _ in range(3):
            steps.append(number)
            yield None
        yield from search.plan(question, now)

    data = codec.encode(test_service.request(timeout_milliseconds=60_000))
    paused = dataclasses.replace(search, plan=planning)

    await asyncio.gather(*(bench.planner.handle(paused, data) for _ in range(3)))

    assert steps == [0, 0, 0, 1, 1, 1, 2, 2, 2]
