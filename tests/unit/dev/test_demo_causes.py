"""What happened is told by time and by cause, whatever clocks say and whenever it was seen."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.dev.demo.causes import Happened, in_order

pytestmark = pytest.mark.tools

STEPS = ("created", "decision", "nominated", "order", "leaves", "outcome", "bound")
SEEN = {"created", "nominated", "leaves", "bound"}


def story(name: str, begin: float) -> list[Happened[str]]:
    """One preemption, a step each 10 ms, every step caused by the one before."""
    return [
        Happened(
            f"{name} {step}",
            begin + 0.01 * number,
            key=f"{name} {step}",
            causes=(f"{name} {STEPS[number - 1]}",) if number else (),
            seen=step in SEEN,
        )
        for number, step in enumerate(STEPS)
    ]


@given(
    st.permutations(story("a", 0.0) + story("b", 0.025)),
    st.lists(st.floats(-0.1, 0.3), min_size=14, max_size=14),
)
def test_any_order_of_arrival_gives_a_linear_extension_of_the_causes(
    events: list[Happened[str]], errors: list[float]
) -> None:
    told = in_order(
        [
            replace(one, at=one.at + (abs(error) if one.seen else error))
            for one, error in zip(events, errors, strict=True)
        ]
    )

    names = [one.item for one in told]
    assert sorted(names) == sorted(one.item for one in events)
    assert all(names.index(cause) < names.index(one.item) for one in told for cause in one.causes)
    assert [one.at for one in told] == sorted(one.at for one in told)


@given(
    st.permutations(story("a", 0.0) + story("b", 0.025)),
    st.lists(st.floats(0, 0.3), min_size=14, max_size=14),
)
def test_what_was_seen_late_keeps_messages_in_place(events: list[Happened[str]], late: list[float]) -> None:
    true = {one.item: one.at for one in events}
    told = in_order(
        [
            replace(one, at=one.at + delay) if one.seen and one.item[2:] != "created" else one
            for one, delay in zip(events, late, strict=True)
        ]
    )

    assert {one.item: one.at for one in told if not one.seen} == {
        name: at for name, at in true.items() if name[2:] not in SEEN
    }


def test_what_has_no_cause_among_them_is_told_by_time_alone() -> None:
    events = [Happened("b", 2.0, causes=("gone",)), Happened("a", 1.0), Happened("c", 2.0)]

    assert [one.item for one in in_order(events)] == ["a", "b", "c"]
