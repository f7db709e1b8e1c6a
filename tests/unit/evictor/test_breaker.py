"""The breaker: what opens it and for whom, what it stops, and how it is kept and reset."""

import asyncio
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from background import background
from makeway.bus.messages import Outcome, VictimOutcome
from makeway.core.k8s.objects import Pod
from makeway.core.policy.breaker import CAUSES, LASTS, Trip, data_of, parse_breaker
from makeway.evictor.intake.breaker_store import BreakerStore
from makeway.evictor.intake.probe import ApiProbe
from makeway.evictor.intake.wasted import WastedVictims, in_vain
from makeway.evictor.limits.breaker import OPENS_AT, SKEWED_READINGS, Breaker
from makeway.evictor.metrics import EvictorMetrics
from makeway.runtime.kube import ApiError, ApiUnavailable
from makeway.runtime.server_clock import ahead_of
from narrowing import there
from typed_calls import FakeApis
from unit.evictor.building import (
    CLUSTER,
    NODE,
    NOW,
    a_pod,
    make_order,
    make_outcome,
    make_preemptor,
    preemptor_pod,
)
from unit.evictor.fakes import FakeCluster, VirtualClock
from unit.evictor.test_service import World, running
from unit.evictor.test_slots import Running, order_of

SECOND = timedelta(seconds=1)
_TABLE = json.loads((Path(__file__).parents[3] / "bus/testdata/breaker/cases.json").read_text())


def make_breaker(clock: VirtualClock | None = None) -> Breaker:
    return Breaker(clock or VirtualClock(), EvictorMetrics(CollectorRegistry()))


def opened(cause: str = "mismatches") -> Breaker:
    breaker = make_breaker()
    for _ in range(OPENS_AT["mismatches"]):
        breaker.report("mismatches" if cause == "mismatches" else "signatures", "x")
    return breaker


def changed(outcome: Outcome, **fields: object) -> Outcome:
    return msgspec.structs.replace(outcome, **fields)


class FakeConfigMap(FakeApis):
    """The object as the API server keeps it; None: it does not exist."""

    def __init__(self, data: dict[str, str] | None) -> None:
        self.data = data

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: object) -> bytes:
        if self.data is None:
            raise ApiError(404, "NotFound", "not found")
        if method == "PATCH":
            self.data |= msgspec.json.decode(body)["data"]
        return msgspec.json.encode({"metadata": {"name": "makeway-breaker"}, "data": self.data})


# ----------------------------------------------------------------------------------- what opens it


async def test_orders_that_no_planner_writes_open_it_everywhere_and_stop_the_deletes() -> None:
    world = World(a_pod("a").priority(2000).build(), *running("b"))
    breaker = make_breaker()
    refused = await world.carry_out(make_order("a"))
    for _ in range(OPENS_AT["mismatches"]):
        assert not breaker.everywhere()
        breaker.ended(refused)

    assert "mismatches" in breaker.everywhere()
    stopped = there(breaker.refusal_of(make_order("b")))
    assert stopped.reason == "breaker-open"


async def test_orders_that_a_clock_an_hour_behind_takes_for_endless_open_nothing() -> None:
    world, breaker = World(*running("a")), make_breaker()
    refused = await world.carry_out(make_order("a", not_after=NOW + timedelta(hours=1, minutes=1)))
    assert refused.reason == "not-after-too-far"

    for _ in range(OPENS_AT["mismatches"]):
        breaker.ended(refused)

    assert breaker.open() == ()


@pytest.mark.parametrize("reason", ["never-evict", "protected-namespace", "not-bound", "disruption-budget"])
def test_what_a_victims_owner_can_bring_about_opens_nothing(reason: str) -> None:
    breaker, outcome = make_breaker(), make_outcome("o", "refused")
    victim = VictimOutcome(namespace="a", name="x", uid="x", result="spared", reason=reason)
    spared = changed(outcome, reason="victim-spared", victims=(victim,))
    gone = changed(make_outcome("o", "cancelled"), reason="preemptor-gone")
    for _ in range(1000):
        breaker.ended(spared)
        breaker.ended(gone)

    assert breaker.open() == ()


def test_victims_in_vain_open_it_for_their_preemptors_namespace_alone_and_for_ten_minutes() -> None:
    clock = VirtualClock()
    breaker = make_breaker(clock)
    for _ in range(20):
        breaker.placed("greedy", 1, wasted=True)

    assert breaker.refusal_of(make_order("a")) is None
    greedy = make_order("a", preemptor=make_preemptor(namespace="greedy"))
    refused = there(breaker.refusal_of(greedy))
    assert refused.reason == "breaker-open-namespace"
    assert not breaker.everywhere()
    clock.time += LASTS
    assert breaker.refusal_of(greedy) is None


def test_victims_in_vain_open_nothing_where_most_are_not() -> None:
    breaker = make_breaker()
    for number in range(60):
        breaker.placed("busy", 1, wasted=number % 3 == 0)

    assert breaker.open() == ()


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        (preemptor_pod().build(), True),
        (preemptor_pod().on(NODE).build(), False),
        (preemptor_pod().on("node-b").build(), True),
        (preemptor_pod().terminating().build(), None),
        (preemptor_pod().phase("Succeeded").build(), None),
        (preemptor_pod().uid("another").build(), None),
        (None, None),
    ],
)
def test_victims_are_wasted_where_the_preemptor_has_no_place(pod: Pod | None, told: bool | None) -> None:
    assert in_vain(make_order("a"), [pod]) is told


async def test_preemptors_are_looked_at_a_minute_after_their_victims_should_be_gone() -> None:
    world = World(*running("a"))
    outcome = await world.carry_out(make_order("a"))
    clock, breaker = VirtualClock(), make_breaker()
    wasted = WastedVictims(FakeCluster(), clock, breaker)
    for _ in range(20):
        wasted.follow(make_order("a"), outcome)

    clock.time = NOW + 89 * SECOND
    await wasted.look()
    assert breaker.open() == ()
    clock.time = NOW + 91 * SECOND
    await wasted.look()
    assert [trip.key for trip in breaker.open()] == ["wasted-victims.default"]


async def test_victims_with_any_grace_period_that_an_author_writes_are_not_followed() -> None:
    outcome = await World(*running("a")).carry_out(make_order("a"))
    (victim,) = outcome.victims
    clock, breaker = VirtualClock(), make_breaker()
    wasted = WastedVictims(FakeCluster(), clock, breaker)

    for _ in range(20):
        wasted.follow(
            make_order("a"), replace(outcome, victims=(replace(victim, grace_period_seconds=2**63 - 1),))
        )

    clock.time = NOW + timedelta(days=1)
    await wasted.look()
    assert breaker.open() == ()


def test_a_clock_that_is_off_opens_it_for_this_process_until_it_agrees() -> None:
    breaker = make_breaker()
    for _ in range(SKEWED_READINGS - 1):
        breaker.clock_read(timedelta(seconds=-60))
    assert breaker.open() == ()
    breaker.clock_read(timedelta(seconds=-60))

    assert "60 s behind" in breaker.everywhere()
    assert breaker.unstored() == ()
    breaker.clock_read(timedelta(0))
    assert breaker.open() == ()


@pytest.mark.parametrize("fault", [ApiUnavailable("cut off"), None])
async def test_an_evictor_that_is_cut_off_or_whose_clock_is_off_leaves_orders_to_others(
    fault: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the first order that it would take."""
    monkeypatch.setattr("makeway.evictor.intake.probe.INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr("makeway.evictor.intake.probe.AGAIN_SECONDS", 0.01)
    world, api = Running(1, "a"), AsyncMock()
    api.cluster_uid.side_effect = fault
    api.cluster_uid.return_value = CLUSTER
    api.server_time.return_value = NOW if fault else NOW + timedelta(hours=1)
    probe = ApiProbe(api, CLUSTER, VirtualClock(), make_breaker().clock_read)

    async with background(probe.probe_forever()), world.taking_orders(ready=probe.usable):
        await asyncio.sleep(0.05)
        world.stream.put(order_of("a"))
        await world.clock.run(60)
        assert world.stream.handed == []
        api.cluster_uid.side_effect, api.server_time.return_value = None, NOW
        await asyncio.wait_for(probe.usable.wait(), 5)
        await world.clock.run(1)

        assert [one.said for one in world.stream.handed] == [["ack"]]


def test_a_clock_that_turns_out_to_be_off_is_set_anew_once_nothing_goes_by_it() -> None:
    opened = list[str]()
    breaker = Breaker(
        VirtualClock(), EvictorMetrics(CollectorRegistry()), lambda: opened.append(breaker.everywhere())
    )

    for _ in range(SKEWED_READINGS - 1):
        breaker.clock_read(timedelta(hours=1))
    assert opened == []
    breaker.clock_read(timedelta(hours=1))

    assert [bool(why) for why in opened] == [True]


async def test_an_order_that_was_asked_for_before_is_given_back() -> None:
    world, usable = Running(1, "a"), asyncio.Event()
    usable.set()

    async with world.taking_orders(ready=usable):
        await world.clock.run(1)
        usable.clear()
        world.stream.put(order_of("a"))
        await world.clock.run(1)

        assert [one.said for one in world.stream.handed] == [["nak"]]


def test_a_clock_is_off_only_by_what_neither_the_way_nor_the_rounding_explains() -> None:
    assert ahead_of(NOW, NOW, NOW + 5 * SECOND) == timedelta(0)
    assert ahead_of(NOW, NOW + 0.9 * SECOND, NOW + 2 * SECOND) == timedelta(0)
    assert ahead_of(NOW, NOW + 31 * SECOND, NOW + 32 * SECOND) == 30 * SECOND
    assert ahead_of(NOW, NOW - 32 * SECOND, NOW - 30 * SECOND) == -30 * SECOND


def test_signatures_that_fail_open_it() -> None:
    assert "signatures" in opened("signatures").everywhere()


# ------------------------------------------------------------------------------------ what it stops


async def test_an_order_under_way_stops_and_is_rolled_back_when_it_opens() -> None:
    world, breaker = World(*running("a", "b")), make_breaker()
    world.breaker = breaker.refusal_of
    breaker.subscribe(world.mode_guard.changed)

    def open_it() -> None:
        for _ in range(OPENS_AT["mismatches"]):
            breaker.report("mismatches", "x")

    world.cluster.before("delete", "a", open_it)

    await world.ends(make_order("a", "b"), "refused", "breaker-open", deletes=["a"])

    assert not world.cluster.is_marked("b")
    assert world.nominated_node() is None


# ------------------------------------------------------------------------------------ how it is kept


async def test_it_is_open_after_a_restart_and_in_other_evictors() -> None:
    configmap = FakeConfigMap({})
    await BreakerStore(configmap, opened(), namespace="m").sync()

    other = make_breaker()
    await BreakerStore(configmap, other, namespace="m").sync()

    assert "mismatches" in other.everywhere()


async def test_a_reset_closes_it_everywhere_and_the_evidence_of_before_does_not_open_it_again() -> None:
    configmap, first, second = FakeConfigMap({}), opened(), make_breaker()
    stores = [BreakerStore(configmap, one, namespace="m") for one in (first, second)]
    for store in stores:
        await store.sync()

    configmap.data = {"resetAt": "2026-01-31T12:00:00Z"}
    for store in stores:
        await store.sync()
    first.report("mismatches", "x")

    assert first.open() == second.open() == ()


async def test_a_reset_forgets_the_evidence_also_where_nothing_is_open_yet() -> None:
    configmap, breaker = FakeConfigMap({}), make_breaker()
    store = BreakerStore(configmap, breaker, namespace="m")
    await store.sync()
    for _ in range(OPENS_AT["mismatches"] - 1):
        breaker.report("mismatches", "x")

    configmap.data = {"resetAt": (NOW - SECOND).isoformat()}
    await store.sync()
    breaker.report("mismatches", "x")
    await store.sync()

    assert breaker.open() == ()
    for _ in range(OPENS_AT["mismatches"] - 1):
        breaker.report("mismatches", "x")
    await store.sync()
    assert breaker.everywhere()


async def test_without_the_configmap_it_holds_in_its_process_and_a_reset_reaches_it() -> None:
    configmap, breaker = FakeConfigMap(None), opened()
    store = BreakerStore(configmap, breaker, namespace="m")
    await store.sync()

    assert store.known.is_set()
    assert not store.unsynced()
    assert breaker.everywhere()
    configmap.data = {"resetAt": (NOW + SECOND).isoformat()}
    await store.sync()
    assert not breaker.everywhere()


def test_what_is_written_is_read_again_and_what_cannot_be_read_is_open() -> None:
    trip = Trip("wasted-victims", "shop", datetime.fromisoformat("2026-01-31T12:00:00+00:00"), "20 of 20")
    assert parse_breaker(data_of(trip), NOW) == ({"wasted-victims.shop": trip}, None)
    trips, _ = parse_breaker(
        {"mismatches": "yesterday", "other": "x", "resetAt": "2026-01-31T12:00:00Z"}, NOW
    )
    assert list(trips) == ["mismatches"]


def test_what_cannot_be_read_is_told_whole_on_one_line_and_of_no_time() -> None:
    trips, _ = parse_breaker({"mismatches": "opened by hand\n  ✓ breaker: closed"}, NOW)

    told = "the breaker is open everywhere: mismatches: opened by hand   ✓ breaker: closed"
    assert [trip.describe() for trip in trips.values()] == [told]


@pytest.mark.parametrize("case", _TABLE["cases"], ids=lambda case: case["name"])
def test_what_it_is_open_for_is_read_as_the_plugin_reads_it(case: dict[str, Any]) -> None:
    now = datetime.fromisoformat(_TABLE["now"])

    trips, _ = parse_breaker(case["data"], now)

    assert sorted({trip.namespace for trip in trips.values() if trip.holds(now)}) == case["open"]


def test_the_table_that_holds_the_plugin_to_it_has_every_cause() -> None:
    assert set(CAUSES) <= {key.partition(".")[0] for case in _TABLE["cases"] for key in case["data"]}


@pytest.mark.parametrize(
    "since",
    [
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+12:00",
        "2026-01-31T12:00:00",
    ],
)
def test_a_time_that_no_evictor_writes_stops_no_evictor(since: str) -> None:
    trips, _ = parse_breaker({"wasted-victims.shop": f"{since} x", "mismatches": f"{since} x"}, NOW)
    breaker = opened()

    breaker.take(trips, None)

    assert breaker.everywhere()
    assert all("everywhere" in trip.describe() or "shop" in trip.describe() for trip in trips.values())


def test_a_reset_far_in_the_future_keeps_no_breaker_from_opening() -> None:
    trip = Trip("mismatches", "", NOW, "20 of 20")
    far = (NOW + timedelta(days=365)).isoformat()

    assert parse_breaker({**data_of(trip), "resetAt": far}, NOW) == ({"mismatches": trip}, None)
    soon = NOW + timedelta(minutes=30)
    assert parse_breaker({**data_of(trip), "resetAt": soon.isoformat()}, NOW) == ({}, soon)
