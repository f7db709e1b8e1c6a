"""The shadow scheduler as the nominator asks it: what it answers, and what comes of its silence."""

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import API_VERSION
from makeway.bus.plan import PlanReply, Refusal
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.shadow import AWAY_SECONDS, LEFT_ALONE_SECONDS, NOT_VERIFIED, ShadowScheduler


class OnlyShadow:
    """A bus on which a shadow answers, or nothing does."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked = 0

    async def request_verified_plan(self, request: bytes, timeout_seconds: float) -> bytes:
        self.asked += 1
        if self.answer is None:
            raise BusUnavailable("ask the shadow scheduler: no responders")
        return self.answer


def reply(request_id: str = "req-1", **fields: Any) -> bytes:
    given = {"planner": "shadow/one", "status": "candidates", **fields}
    return codec.encode(PlanReply(api_version=API_VERSION, request_id=request_id, **given))


def asking(bus: OnlyShadow) -> tuple[ShadowScheduler, CollectorRegistry]:
    registry = CollectorRegistry()
    return ShadowScheduler(cast("Bus", bus), NominatorMetrics(registry)), registry


async def test_its_answer_is_a_plan() -> None:
    one, registry = asking(OnlyShadow(reply()))

    answer = await one.ask(b"{}", "req-1")

    assert answer is not None
    assert answer.planner == "shadow/one"
    assert not one.away
    assert registry.get_sample_value("makeway_nominator_shadow_answers") == 1


async def test_one_that_reaches_no_planner_leaves_the_question_to_the_nominator() -> None:
    refusal = Refusal(reason=NOT_VERIFIED, message="no planner answers")
    bus = OnlyShadow(reply(status="notSynced", refusal=refusal))
    one, _ = asking(bus)

    assert await one.ask(b"{}", "req-1") is None
    assert await one.ask(b"{}", "req-1") is None
    assert (bus.asked, one.away) == (2, False)


@pytest.mark.parametrize("answer", [None, b"[]", reply("another")])
async def test_one_that_does_not_answer_is_away_and_left_alone(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("makeway.nominator.shadow.time.monotonic", lambda: now)
    bus = OnlyShadow(answer)
    one, registry = asking(bus)

    assert await one.ask(b"{}", "req-1") is None
    assert one.away
    assert registry.get_sample_value("makeway_nominator_shadow_answers") == 0
    assert await one.ask(b"{}", "req-1") is None
    assert bus.asked == 1

    now += LEFT_ALONE_SECONDS
    assert await one.ask(b"{}", "req-1") is None
    now += AWAY_SECONDS
    assert not one.away  # no pod has waited for it since

    bus.answer = reply()
    assert await one.ask(b"{}", "req-1") is not None
    assert not one.away
