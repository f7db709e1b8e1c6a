"""What holds an order is shown where it lasts, by Event and condition, and taken back when it is over."""

import asyncio
import contextlib
from datetime import datetime
from typing import Any

import pytest
from msgspec import structs

from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.disruption import PREEMPTION_HELD
from makeway.core.k8s.objects import Pod, PodCondition
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.evictor.act.holds import MOST_A_LOOK, Holds, TellingOfHolds
from makeway.evictor.retry import TemporaryError
from narrowing import there
from unit.evictor.building import NOW, awaiting, changed, make_order
from unit.evictor.test_caps import SECOND
from unit.evictor.test_service import World, running


class Telling:
    """The telling of a world's evictor."""

    def __init__(self, *victims: str) -> None:
        self.world = World(*running(*victims))
        self.holds = self.world.evictor.parts.holds
        self.telling = TellingOfHolds(self.holds, self.world.cluster, self.world.events, self.world.clock)

    @property
    def written(self) -> list[tuple[str, str]]:
        """What conditions were written, each with the pod."""
        return [call for call in self.world.cluster.calls if call[0] == "condition"]

    @property
    def held(self) -> list[PodCondition]:
        pod = self.world.cluster.pods["urgent"]
        return [one for one in pod.status.conditions or () if one.type == PREEMPTION_HELD]

    async def look_at(self, seconds: float) -> None:
        self.world.clock.time = max(self.world.clock.time, NOW + seconds * SECOND)
        await self.telling.look()


@pytest.mark.parametrize(
    ("reason", "told", "words"),
    [
        ("victims-share", "VictimsShare", "allow no more pods in these ten minutes"),
        ("awaited-orders", "AwaitedOrders", "orders for other pods"),
        ("line", "Line", "other orders are carried out first"),
        ("budget", "Budget", "a disruption budget allows no eviction now"),
        ("throttled", "Throttled", "an eviction is tried again (throttled)"),
    ],
)
async def test_what_holds_an_order_for_long_is_told_with_its_end_and_then_taken_back(
    reason: str, told: str, words: str
) -> None:
    one, order = Telling("a"), make_order("a")
    one.holds.put(order, reason, NOW, NOW + 30 * SECOND)

    await one.look_at(4)
    assert one.held == []
    await one.look_at(6)
    await one.look_at(7)
    assert [(held.status, held.reason) for held in one.held] == [("True", told)]
    assert words in (one.held[0].message or "")
    assert "until 2026-01-31T12:00:30Z at the latest" in (one.held[0].message or "")
    events = [event for event in one.world.recorded if event.reason == "PreemptionHeld"]
    assert len(events) == 1

    one.holds.end(order)
    await one.look_at(8)
    assert one.held == []


async def test_another_reason_is_told_in_place_of_the_first() -> None:
    one, order = Telling("a"), make_order("a")
    one.holds.put(order, "awaited-orders", NOW)
    await one.look_at(6)
    one.holds.put(order, "victims-share", NOW + 7 * SECOND)
    await one.look_at(13)

    assert [held.reason for held in one.held] == ["VictimsShare"]


async def test_what_an_evictor_that_has_ended_told_is_taken_back_by_the_next() -> None:
    one, order = Telling("a"), make_order("a")
    one.holds.put(order, "victims-share", NOW)
    await one.look_at(6)
    after = Holds()
    telling = TellingOfHolds(after, one.world.cluster, one.world.events, one.world.clock)

    after.end(order, again=True)
    await telling.look()

    assert one.held == []


@pytest.mark.parametrize("gone", ["deleted", "another", "bound", "leaves"])
async def test_only_the_pod_that_waits_gets_the_condition(gone: str) -> None:
    one, order = Telling("a"), make_order("a")
    pods = one.world.cluster.pods
    match gone:
        case "deleted":
            del pods["urgent"]
        case "another":
            pods["urgent"] = changed(pods["urgent"], "metadata", uid="another")
        case "bound":
            pods["urgent"] = changed(pods["urgent"], "spec", node_name="node-a")
        case _:
            pods["urgent"] = changed(pods["urgent"], "metadata", deletion_timestamp=NOW)
    one.holds.put(order, "budget", NOW)

    await one.look_at(6)

    assert one.written == []


async def test_a_conflict_is_tried_again_and_what_cannot_be_told_holds_up_nothing() -> None:
    one = Telling("a")
    one.world.cluster.fail("condition", "urgent", TemporaryError("conflict", "the object has been modified"))
    one.holds.put(make_order("a"), "budget", NOW)
    await one.look_at(6)
    assert len(one.held) == 1

    other = Telling("a")
    other.world.cluster.always_fail("get_pod", "urgent", TemporaryError("unavailable", "no answer"))
    other.holds.put(make_order("a"), "budget", NOW)
    await other.look_at(6)
    assert other.written == []


async def test_a_pod_whose_condition_cannot_be_written_keeps_no_other_from_its_own() -> None:
    one, order = Telling("a"), make_order("a")
    cluster, plain = one.world.cluster, one.world.cluster.set_condition
    cluster.put(changed(cluster.pods["urgent"], "metadata", name="stuck", uid="stuck-uid"))
    stuck = structs.replace(there(order.preemptor), name="stuck", uid="stuck-uid")

    async def set_condition(pod: Pod, condition: dict[str, Any]) -> None:
        if pod.metadata.name == "stuck":
            await asyncio.Event().wait()
        await plain(pod, condition)

    cluster.set_condition = set_condition  # type: ignore[method-assign]
    one.holds.put(structs.replace(order, order_id="ord-0", preemptor=stuck), "line", NOW)
    one.holds.put(order, "line", NOW + SECOND)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await one.look_at(10)

    assert [held.reason for held in one.held] == ["Line"]


async def test_of_a_burst_some_are_told_of_at_a_time() -> None:
    holds = Holds()
    for number in range(3 * MOST_A_LOOK):
        order: EvictionOrder = structs.replace(make_order("a"), order_id=f"ord-{number}")
        holds.put(order, "line", NOW)

    assert len(holds.due(NOW + 6 * SECOND)) == MOST_A_LOOK


async def test_an_order_that_is_given_back_again_and_again_is_told_of_once_until_it_ends() -> None:
    one, order = Telling("a"), make_order("a")
    for began in (0.0, 6.0, 12.0):
        one.holds.put(order, "line", NOW + began * SECOND)
        one.holds.end(order)
        one.holds.put(order, "server-error", NOW + (began + 1) * SECOND)
        one.holds.end(order, again=began > 0)
        one.holds.give_back(order, NOW + (began + 1) * SECOND, NOW + (began + 6) * SECOND)
        await one.look_at(began + 2)
        await one.look_at(began + 5.5)

    assert [(held.status, held.reason) for held in one.held] == [("True", "NamespaceShare")]
    assert "tried again every few seconds; until 2026-01-31T12:01:00Z" in (one.held[0].message or "")
    events = [event for event in one.world.recorded if event.reason == "PreemptionHeld"]
    assert (len(events), len(one.written)) == (1, 1)

    one.holds.keep(order)
    await one.look_at(20)
    assert one.held == []


async def test_what_holds_an_order_that_has_a_place_again_is_told_in_place_of_the_share() -> None:
    one, order = Telling("a"), make_order("a")
    one.holds.give_back(order, NOW, NOW + 5 * SECOND)
    one.holds.give_back(order, NOW + 6 * SECOND, NOW + 11 * SECOND)
    await one.look_at(7)
    one.holds.put(order, "server-error", NOW + 12 * SECOND)
    one.holds.keep(order)
    await one.look_at(13)
    assert [held.reason for held in one.held] == ["NamespaceShare"]
    await one.look_at(18)
    assert [held.reason for held in one.held] == ["ServerError"]


async def test_an_order_that_has_come_again_elsewhere_is_told_of_there() -> None:
    one, order = Telling("a"), make_order("a")
    one.holds.give_back(order, NOW, NOW + 5 * SECOND)

    await one.look_at(5)
    await one.look_at(30)

    assert one.written == []


class Recording(Holds):
    """Keeps the reasons that orders say."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def put(self, order: EvictionOrder, reason: str, now: datetime, until: datetime | None = None) -> None:
        super().put(order, reason, now, until)
        self.said.append((order.order_id, reason))


async def test_an_order_says_what_holds_it() -> None:
    holds = Recording()
    world = World(*running("a", "b", "c"), holds=holds)
    world.policy = Policy(limits=PolicyLimits(victims_per_minute=1, victims_per_order=1))
    world.cluster.fail("delete", "c", TemporaryError("throttled", "too many requests"))
    await world.carry_out(make_order("c", order_id="ord-0"))
    await world.carry_out(make_order("a", not_after=NOW + 20 * SECOND))
    await world.carry_out(make_order("b", order_id="ord-2", awaited=awaiting("never")))

    assert [one for one in holds.said if one[1] != "line"] == [
        ("ord-0", "throttled"),
        ("ord-1", "victims-per-minute"),
        ("ord-2", "awaited-orders"),
    ]
    assert {name for name, reason in holds.said if reason == "line"} == {"ord-0", "ord-1", "ord-2"}
