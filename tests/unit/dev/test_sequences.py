"""Sequences for two control planes: what is drawn, what is played at once, and how two plays are judged."""

from collections import Counter

import pytest

from integration.drawing import NEVER_EVICT, UNTOUCHABLE
from integration.extending import EXTENDERS
from integration.sequences import EXTRAS, LATEST_SECONDS, PARTS, RELIEFS, Held, draw, judge

DRAWN = [draw(seed) for seed in range(300)]


def test_the_same_seed_is_the_same_sequence_and_another_is_another() -> None:
    assert [draw(seed) for seed in range(300)] == DRAWN
    assert len({(one.nodes, one.pods, one.steps, one.restart) for one in DRAWN}) > 200


def test_three_hundred_seeds_draw_everything_there_is_to_draw() -> None:
    found = Counter(kind for one in DRAWN for kind in one.kinds)
    asked = [f"extender-{name}" for name in EXTENDERS]
    assert not {*RELIEFS, *EXTRAS, *asked, *(f"restart-{part}" for part in PARTS)} - set(found)


def test_a_kept_pod_is_under_the_rule_for_makeway_and_out_of_reach_for_kube_scheduler() -> None:
    kept = Held("v", "low", 500, "n0", kept=True)

    ours, theirs = (kept.builder(plain=plain, own_class="c").build() for plain in (False, True))

    assert ours["metadata"]["annotations"][NEVER_EVICT] == "true"
    assert ours["spec"]["priorityClassName"] == "low"
    assert theirs["spec"]["priorityClassName"] == UNTOUCHABLE


@pytest.mark.parametrize(
    ("theirs", "mine", "wrong"),
    [
        ({}, {}, ""),
        ({}, {"p0": 1.0}, ""),
        ({"p0": 1.0}, {"p0": 1.0 + LATEST_SECONDS}, ""),
        ({"p0": 1.0}, {"p0": 1.1 + LATEST_SECONDS}, "makeway binds 5.1 s later than kube-scheduler"),
        ({"p0": 1.0}, {}, "kube-scheduler binds 1 (1.0 s), makeway 0 in 5 s more"),
        # One room for two equal pods: either may have it.
        ({"p0": 1.0}, {"p1": 1.0}, ""),
        ({"p0": 1.0, "p1": 9.0}, {"p1": 2.0, "p0": 8.0}, ""),
        ({"p0": 1.0, "p1": 2.0}, {"p1": 2.0}, "kube-scheduler binds 2 (1.0 s, 2.0 s), makeway 1 in 5 s more"),
    ],
)
def test_as_many_equal_pods_are_bound_no_more_than_five_seconds_later(
    theirs: dict[str, float], mine: dict[str, float], wrong: str
) -> None:
    assert judge(theirs, mine) == wrong


def test_a_restarted_part_may_be_away_as_long_as_it_takes_to_start() -> None:
    assert judge({"p0": 1.0}, {"p0": 8.0})
    assert not judge({"p0": 1.0}, {"p0": 8.0}, away_seconds=3.0)
