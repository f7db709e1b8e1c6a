"""What goes on now, from the entries."""

from datetime import timedelta

from msgspec.structs import replace

from builders_bus import NOW, make_decision, make_order, make_outcome, make_preemptor
from makeway.bus.component_status import ComponentStatus
from makeway.bus.plan import Refusal
from makeway.dev.samples import MESSAGES
from makeway.ui.model.now import Acting, Now, acting_of, now_of
from makeway.ui.model.timeline import Timeline
from narrowing import as_a

_HOUR = timedelta(hours=1)


def seen(timeline: Timeline, namespace: str = "") -> Now:
    return now_of(timeline.entries(), NOW + timedelta(seconds=10), _HOUR, None, namespace)


def refuse(timeline: Timeline, number: int, uid: str, reason: str) -> None:
    timeline.add(
        make_decision(
            decision_id=f"dec-{number}",
            at=NOW + timedelta(seconds=number),
            status="refused",
            preemptor=make_preemptor(uid, name=uid),
            diagnosis=Refusal(reason=reason, message="why"),
        ),
        NOW,
    )


def test_pods_are_counted_by_the_reason_of_their_last_answer() -> None:
    timeline = Timeline()
    for number, (uid, reason) in enumerate((("a", "X"), ("b", "X"), ("c", "Y"), ("a", "Y"))):
        refuse(timeline, number, uid, reason)

    now = seen(timeline)
    assert [(one.reason, one.pods) for one in now.refused] == [("Y", 2), ("X", 1)]
    assert now.refused_pods == 3
    assert [one.name for one in now.refused[0].examples] == ["a", "c"], "the last one first"


def test_a_pod_for_which_room_was_made_since_is_refused_no_more() -> None:
    timeline = Timeline()
    refuse(timeline, 1, "a", "X")
    order = make_order("a", decision_id="dec-9", created_at=NOW + timedelta(seconds=5))
    timeline.add(order, NOW)

    assert [entry.key for entry in seen(timeline).in_flight] == ["dec-9"]
    assert seen(timeline).refused_pods == 0
    timeline.add(make_outcome(order), NOW)
    assert (seen(timeline).in_flight_total, seen(timeline).evicted) == (0, 1)


def test_only_the_window_counts_but_orders_in_flight_always_do() -> None:
    timeline = Timeline()
    old = NOW - timedelta(hours=3)
    timeline.add(make_order(decision_id="dec-1", created_at=old, not_after=NOW + timedelta(minutes=1)), NOW)

    assert (seen(timeline).in_flight_total, seen(timeline).results) == (1, {})


def test_a_namespace_is_that_of_the_preemptor_or_of_a_victim() -> None:
    timeline = Timeline()
    timeline.add(make_order(decision_id="dec-1"), NOW)

    assert [seen(timeline, space).in_flight_total for space in ("shop", "batch", "other")] == [1, 1, 0]


def test_what_is_wrong_with_a_part_is_said() -> None:
    status = as_a(ComponentStatus, MESSAGES["component-status.full"])
    asked = [replace(status, brake="everywhere", breaker="", trouble="no lease", loops="")]

    (part,) = now_of((), NOW, _HOUR, asked).parts or ()
    assert part.remark == "no lease; braked: everywhere"


def test_the_head_says_the_mode_of_those_that_act_and_what_stops_them() -> None:
    sample = as_a(ComponentStatus, MESSAGES["component-status.full"])
    quiet = replace(sample, mode="enforce", namespace_modes={}, brake="", breaker="", leading=True)
    planner, evictor = replace(quiet, component="planner"), replace(quiet, component="evictor")
    standby = replace(planner, mode="off", leading=False)
    shadow = replace(planner, component="shadow", mode="observe", leading=False)

    assert acting_of(None) == acting_of([]) == Acting("", (), ())
    assert acting_of([planner, evictor, standby, shadow]).mode == "enforce"
    assert acting_of([planner, replace(evictor, mode="off")]).mode == "enforce/off"
    braked = [replace(one, mode="off", brake="everywhere") for one in (planner, evictor)]
    assert acting_of(braked) == Acting("off", ("braked everywhere",), ("planner: off", "evictor: off"))
    some = acting_of([replace(planner, brake="shop, ml"), replace(evictor, breaker="rack r1: 20 victims")])
    assert some.stops == ("braked for shop, ml", "breaker open")
    own = replace(planner, namespace_modes={"shop": "observe"})
    assert acting_of([own]).by_part == ("planner: enforce", "namespace shop: observe")
