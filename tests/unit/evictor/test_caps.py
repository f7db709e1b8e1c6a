"""Caps on evictions: how many pods go in a while, whom they are counted for, and what waits or is refused."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from makeway.bus.messages import Awaited, VictimOutcome
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.policy.rates import Rates, rates_of
from makeway.evictor.limits.hand import MAX_IN_HAND, MOST_WAITING
from makeway.evictor.limits.rates import Evictions, OverCap, victims_of
from makeway.evictor.limits.windows import MINUTE, TEN_MINUTES, SlidingWindow
from narrowing import there
from unit.evictor.building import (
    NODE,
    NOW,
    a_pod,
    awaiting,
    make_order,
    make_outcome,
    make_preemptor,
    make_victim,
)
from unit.evictor.fakes import FORBIDDEN
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World, results, running
from unit.evictor.test_slots import Running, order_of

SECOND = timedelta(seconds=1)


def limited(**limits: int) -> Policy:
    return Policy(limits=PolicyLimits(**limits))


def at_its_cap() -> World:
    """A world of which one pod may be evicted in a minute, and one was."""
    world = World(*running("a"))
    world.policy = limited(victims_per_minute=1, victims_per_order=1)
    world.evictor.parts.caps.count({"default": 1}, NOW)
    return world


def cap_of(over: OverCap | None) -> str:
    return over.cap if over is not None else ""


# ------------------------------------------------------------------------------------ windows


@given(
    events=st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 5)), max_size=40),
    span=st.sampled_from([MINUTE, TEN_MINUTES]),
)
def test_a_window_never_counts_less_than_what_happened_in_its_span(
    events: list[tuple[int, int]], span: timedelta
) -> None:
    window, done = SlidingWindow(span), list[tuple[int, int]]()
    for seconds, count in sorted(events):
        now = NOW + seconds * SECOND
        window, done = window.adding(count, now, now), [*done, (seconds, count)]

        inside = sum(n for at, n in done if seconds - at < span.total_seconds())
        nearly = sum(n for at, n in done if seconds - at < span.total_seconds() * 61 / 60)
        assert inside <= window.total(now) <= nearly
        assert len(window.buckets) <= 61


def test_what_is_older_than_the_span_and_a_bucket_counts_no_more() -> None:
    window = SlidingWindow(MINUTE).adding(7, NOW, NOW)

    assert window.total(NOW + 60 * SECOND) == 7
    assert window.total(NOW + 61 * SECOND) == 0


def test_a_clock_that_is_ahead_fills_no_bucket_of_the_future() -> None:
    window = SlidingWindow(MINUTE).adding(3, NOW + timedelta(days=1), NOW)

    assert window.total(NOW) == 3
    assert window.total(NOW + 61 * SECOND) == 0


def test_the_share_is_of_all_pods_and_never_less_than_an_order_may_have() -> None:
    assert rates_of(PolicyLimits(), 0).ten_minutes == 100
    assert rates_of(PolicyLimits(), 10_000).ten_minutes == 500
    assert rates_of(PolicyLimits(victims_per_order=300), 0).ten_minutes == 300


def test_over_a_minute_and_over_ten_are_told_apart() -> None:
    rates = Rates(minute=10, ten_minutes=15)
    evictions = Evictions().adding({"a": 10}, NOW, NOW)

    assert cap_of(evictions.over(rates, "x", {"a": 1}, NOW)) == "victims-per-minute"
    later = NOW + 2 * MINUTE
    assert evictions.over(rates, "x", {"a": 5}, later) is None
    assert cap_of(evictions.over(rates, "x", {"a": 6}, later)) == "victims-share"


def test_a_namespace_has_a_cap_of_its_own_where_the_policy_says_so() -> None:
    evictions = Evictions().adding({"a": 3}, NOW, NOW)

    assert evictions.over(Rates(100, 100), "x", {"a": 3}, NOW) is None
    assert cap_of(evictions.over(Rates(100, 100, 5), "x", {"a": 3}, NOW)) == "victims-per-namespace"
    assert evictions.over(Rates(100, 100, 5), "x", {"b": 3}, NOW) is None


def test_the_last_fifth_of_a_cap_is_kept_for_those_that_have_used_little() -> None:
    rates = Rates(minute=1000, ten_minutes=100)
    evictions = Evictions().adding({"a": 80}, NOW, NOW, party="greedy")

    over = there(evictions.over(rates, "greedy", {"a": 1}, NOW))
    assert not over.everywhere
    assert evictions.over(rates, "modest", {"a": 20}, NOW) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 90)), max_size=60))
def test_no_sequence_of_allowed_evictions_is_over_a_cap(steps: list[tuple[str, int, int]]) -> None:
    rates = Rates(minute=20, ten_minutes=50, namespace=12)
    evictions, now = Evictions(), NOW
    done: list[tuple[datetime, str, int]] = []
    for namespace, count, pause in steps:
        now += pause * SECOND
        if evictions.over(rates, namespace, {namespace: count}, now) is None:
            evictions = evictions.adding({namespace: count}, now, now, party=namespace)
            done.append((now, namespace, count))
    for end, _, _ in done:
        minute = [(ns, n) for at, ns, n in done if end - MINUTE < at <= end]
        assert sum(n for _, n in minute) <= 20
        assert sum(n for at, _, n in done if end - TEN_MINUTES < at <= end) <= 50
        assert all(sum(n for ns, n in minute if ns == one) <= 12 for one in "abc")
    assert len(evictions.parties.by_key) <= 3


def test_victims_of_an_order_that_came_again_count_though_another_delivery_deleted_them() -> None:
    victims = (
        VictimOutcome(namespace="a", name="x", uid="x", result="deleted", deleted_at=NOW),
        VictimOutcome(namespace="b", name="y", uid="y", result="terminating"),
        VictimOutcome(namespace="c", name="z", uid="z", result="spared"),
    )

    def counted(deliveries: int) -> list[str]:
        outcome = make_outcome("o", "succeeded")
        changed = structs.replace(outcome, victims=victims, deliveries=deliveries)
        return [namespace for namespace, _ in victims_of(changed)]

    assert counted(1) == ["a"]
    assert counted(2) == ["a", "b"]


# ------------------------------------------------------------------------------------- orders


async def test_an_order_over_the_minutes_cap_waits_until_there_is_room() -> None:
    world = World(*running("a", "b"))
    world.policy = limited(victims_per_minute=2, victims_per_order=2)
    world.evictor.parts.caps.count({"default": 1}, NOW - 30 * SECOND)

    await world.ends(make_order("a", "b", not_after=NOW + 60 * SECOND), "succeeded")

    assert world.clock.now() >= NOW + 30 * SECOND
    assert (
        world.metric("makeway_evictor_orders_over_caps_total", cap="victims-per-minute", what="waited") == 1
    )


async def test_by_default_no_cap_holds_what_the_api_server_bears_out() -> None:
    """Its victims are counted, and told where they are more than the default caps."""
    names = [f"p{number}" for number in range(100)]
    world = World(*running(*names))
    world.evictor.parts.caps.count({"default": 600}, NOW)

    await world.ends(make_order(*names), "succeeded")

    assert len(world.cluster.deletes()) == 100
    assert world.evictor.parts.caps.describe(world.clock.now()) == (
        "700 victims in the last minute, 700 in ten minutes; of quotas and unverified orders "
        "600 of 500 allowed in a minute, 600 of 100 in ten"
    )


async def test_each_cap_is_told_with_the_orders_that_it_holds() -> None:
    world = World(*running("a"))
    world.policy = limited(victims_per_minute=1, victims_per_order=1)

    await world.ends(make_order("a"), "succeeded")

    assert world.evictor.parts.caps.describe(world.clock.now()) == (
        "1 victim in the last minute, 1 in ten minutes; 1 of 1 allowed in a minute, "
        "of quotas and unverified orders 0 of 100 in ten"
    )


async def test_orders_that_are_borne_out_leave_a_quota_its_share() -> None:
    names = [f"p{number}" for number in range(100)]
    world = World(*running(*names), *(a_pod(f"q{i}").build() for i in range(81)))
    await world.carry_out(make_order(*names))

    quota = quota_order(*(f"q{number}" for number in range(81)))
    await world.ends(structs.replace(quota, order_id="ord-q"), "refused", "victims-share")

    assert len(world.cluster.deletes()) == 100 + 80  # the last fifth is for other queues


async def test_by_default_the_caps_hold_an_order_whose_victim_runs_nowhere_by_the_api_server() -> None:
    world = World(a_pod("a").on(None).phase("Pending").build())
    world.evictor.parts.caps.count({"default": 100}, NOW)

    await world.ends(make_order(make_victim("a", assumed=True)), "refused", "victims-share", deletes=[])


async def test_an_order_that_a_cap_holds_ends_by_the_caps_name_however_late_it_looks_again() -> None:
    world = at_its_cap()
    world.clock.late = 1.5 * SECOND

    await world.ends(make_order("a", not_after=NOW + 20 * SECOND), "refused", "victims-per-minute")


async def test_an_order_that_is_over_a_rate_until_its_time_ends_is_refused_with_the_cap() -> None:
    world = at_its_cap()

    outcome = await world.ends(make_order("a", not_after=NOW + 20 * SECOND), "refused", "victims-per-minute")

    assert outcome.message == "1 more victims than the 1 of the last minute: the policy allows 1"
    assert outcome.finished_at < NOW + 20 * SECOND
    assert world.cluster.deletes() == world.cluster.marks() == []
    assert world.nominated_node() is None


async def test_what_an_order_did_not_evict_is_taken_back() -> None:
    world = World(*running("a", "b"))
    world.cluster.always_fail("mark", "a", FORBIDDEN)

    await world.carry_out(make_order("a", "b"))

    assert world.evictor.parts.caps.describe(NOW).startswith("0 victims in the last minute")


async def test_victims_that_an_earlier_delivery_deleted_count_here_too() -> None:
    world = World(a_pod("a").terminating().build(), a_pod("b").build())

    await world.carry_out(make_order("a", "b"), deliveries=2)

    assert world.evictor.parts.caps.describe(world.clock.now()).startswith("2 victims in the last minute")


async def test_what_other_evictors_evicted_counts_and_ones_own_outcome_does_not_count_twice() -> None:
    world = World(*running("a"))
    await world.carry_out(make_order("a"))
    own = world.records.outcomes["ord-1"]
    world.evictor.parts.caps.ended(own, NOW)
    assert world.evictor.parts.caps.describe(NOW).startswith("1 victim in the last minute")

    world.evictor.parts.caps.ended(structs.replace(own, evictor="evictor-2"), NOW)
    assert world.evictor.parts.caps.describe(NOW).startswith("2 victims in the last minute")


async def test_a_quota_order_goes_as_far_as_the_caps_let_it() -> None:
    world = World(*running("a", "b", "c"))
    world.policy = limited(victims_per_minute=2, victims_per_order=3)

    outcome = await world.ends(quota_order("a", "b", "c"), "refused", "victims-per-minute")

    assert sorted(world.cluster.deletes()) == ["a", "b"]
    assert results(outcome)["c"] == "notAttempted"


async def test_a_quota_order_that_a_cap_keeps_for_long_is_not_held_and_says_when_to_try_again() -> None:
    names = [f"p{number}" for number in range(10)]
    world = World(*running(*names))
    world.policy = limited(victims_per_minute=5, victims_per_order=10)

    outcome = await world.ends(quota_order(*names), "refused", "victims-per-minute")

    assert len(world.cluster.deletes()) == 4  # the last fifth is for others
    assert outcome.finished_at - NOW < 5 * SECOND
    assert MINUTE <= there(outcome.retry_at) - NOW <= MINUTE + 2 * SECOND
    assert outcome.room == 4


def test_the_room_that_is_told_is_what_the_caps_then_allow() -> None:
    rates = Rates(minute=10, ten_minutes=20)
    evictions = Evictions()
    for second, count in ((0, 3), (30, 5)):
        at = NOW + second * SECOND
        evictions = evictions.adding({"a": count}, at, at, party="queue root.a")
    now = NOW + 40 * SECOND

    room = there(evictions.room(rates, "queue root.a", {"a": 9}, now))

    assert evictions.over(rates, "queue root.a", {"a": room.victims}, room.at) is None
    assert evictions.over(rates, "queue root.a", {"a": room.victims + 1}, room.at) is not None
    assert evictions.over(rates, "queue root.a", {"a": 1}, room.at - SECOND / 1000) is not None


def test_victims_that_go_together_wait_until_all_of_them_may_go() -> None:
    rates = Rates(minute=10, ten_minutes=100)
    evictions = Evictions()
    for second in (0, 30):
        at = NOW + second * SECOND
        evictions = evictions.adding({"a": 4}, at, at, party="queue root.a")
    now = NOW + 40 * SECOND

    one = evictions.room(rates, "queue root.a", {"a": 6}, now)
    together = evictions.room(rates, "queue root.a", {"a": 6}, now, together=True)

    assert one is not None
    assert together is not None
    assert together.at > one.at
    assert together.victims == 6
    assert evictions.room(rates, "queue root.a", {"a": 11}, now, together=True) is None


@given(
    st.builds(Rates, st.integers(1, 12), st.integers(1, 30), st.none() | st.integers(1, 8)),
    st.lists(st.tuples(st.integers(0, 90), st.sampled_from("ab"), st.integers(1, 5), st.sampled_from("pq"))),
    st.dictionaries(st.sampled_from("ab"), st.integers(1, 5), min_size=1),
    st.booleans(),
)
def test_the_time_that_is_told_is_the_first_from_now_on_at_which_the_caps_let_pods_go(
    rates: Rates, evicted: list[tuple[int, str, int, str]], victims: dict[str, int], together: bool
) -> None:
    evictions, now = Evictions(), NOW
    for seconds, where, count, party in evicted[:8]:
        now += seconds * SECOND
        evictions = evictions.adding({where: count}, now, now, party=party)
    wanted = [victims] if together else [{where: 1} for where in victims]

    def allowed(seconds: int) -> bool:
        at = now + seconds * SECOND
        return any(evictions.over(rates, "p", one, at) is None for one in wanted)

    first = next((seconds for seconds in range(0, 640, 5) if allowed(seconds)), None)
    room = evictions.room(rates, "p", victims, now, together=together)

    assert (room is None) == (first is None)
    if room is not None and first is not None:
        assert now <= room.at <= now + first * SECOND
        assert first == 0 or room.at > now + (first - 5) * SECOND


def test_where_a_cap_lets_no_pod_go_ever_no_room_is_told() -> None:
    assert Evictions().room(Rates(0, 0), "queue root.a", {"a": 1}, NOW) is None


async def test_an_order_that_counts_on_too_many_others_is_refused_before_anything_is_read() -> None:
    world = World(*running("a"))
    awaited = tuple(Awaited(uid=f"u{i}", order_id=f"ord-x{i}") for i in range(33))

    await world.ends(make_order("a", awaited=awaited), "refused", "too-many-awaited")

    assert not any(name.startswith("ord-x") for name in world.records.looked_for)


async def test_an_order_that_nobody_wants_waits_for_no_other() -> None:
    world = World(*running("a"))
    world.cluster.remove("urgent")

    await world.ends(make_order("a", awaited=awaiting("ord-0")), "cancelled", "preemptor-gone")

    assert "ord-0" not in world.records.looked_for


async def test_the_mode_stops_an_order_that_waits_for_a_cap() -> None:
    world = at_its_cap()
    world.cluster.before("get_pod", "a", lambda: setattr(world, "policy", Policy(mode="off")))

    await world.ends(make_order("a"), "refused", "mode-off")

    assert world.evictor.parts.caps.describe(NOW).startswith("1 victim in the last minute")


async def test_orders_that_wait_for_others_without_end_hold_up_no_other_order() -> None:
    """Those that are more than may wait in one evictor are given back, and the rest holds no slot."""
    many = MOST_WAITING + 50
    world = Running(4, "a")
    other = make_preemptor(name="other", uid="other-uid")
    world.cluster.put(a_pod("other").on(None).priority(1000).phase("Pending").nominated(NODE).build())
    async with world.taking_orders():
        for number in range(many):
            world.stream.put(
                make_order(order_id=f"ord-w{number}", preemptor=other, awaited=awaiting(f"never-{number}"))
            )
        await world.clock.run(1)
        world.stream.put(order_of("a"))
        await world.clock.run(1)

        assert {name: one.result for name, one in world.records.outcomes.items()} == {"ord-a": "succeeded"}
        assert sum(one.said == ["nak"] for one in world.stream.handed) == 50
        await world.clock.run(60)


async def test_any_number_of_orders_in_hand_may_count_on_one_that_ends_soon() -> None:
    """As those of small pods that fit where one large pod goes."""
    world = Running(4)
    other = make_preemptor(name="other", uid="other-uid")
    world.cluster.put(a_pod("other").on(None).priority(1000).phase("Pending").nominated(NODE).build())
    async with world.taking_orders():
        for number in range(MAX_IN_HAND - 1):
            world.stream.put(
                make_order(order_id=f"ord-{number}", preemptor=other, awaited=awaiting("ord-large"))
            )
        await world.clock.run(0.5)
        world.records.outcomes["ord-large"] = make_outcome("ord-large", "succeeded")
        await world.clock.run(2)

        results = Counter(one.result for one in world.records.outcomes.values())
        assert results == {"succeeded": MAX_IN_HAND}


async def test_a_small_order_passes_a_large_one_of_its_priority_but_none_of_a_higher() -> None:
    async def evicted(priority: int, minute: int = 10) -> list[str]:
        names = [f"v{i}" for i in range(10)]
        world = World(*running(*names, "s"))
        world.policy = limited(victims_per_minute=minute, victims_per_order=10)
        world.evictor.parts.caps.count({"default": 5}, NOW)
        large = make_order(*names, preemptor=make_preemptor(priority=priority), not_after=NOW + 30 * SECOND)
        small = make_order(
            make_victim("s"), order_id="ord-2", not_after=NOW + 20 * SECOND, preemptor=make_preemptor()
        )
        await asyncio.gather(world.carry_out(large), world.carry_out(small))
        return world.cluster.deletes()

    assert await evicted(1000) == ["s"]
    assert await evicted(2000) == []
    assert await evicted(2000, minute=9) == ["s"]  # no time lets the large one go


async def test_a_flood_is_slowed_to_the_minutes_cap() -> None:
    names = [f"p{i}" for i in range(12)]
    world = Running(8, *names)
    world.policy = limited(victims_per_minute=5, victims_per_order=5)
    async with world.taking_orders():
        world.stream.put(*(order_of(name) for name in names))
        await world.clock.run(5)
        first = len(world.cluster.deletes())
        await world.clock.run(52)
        assert len(world.cluster.deletes()) == first == 4  # the last fifth is for other namespaces
        await world.clock.run(4)
