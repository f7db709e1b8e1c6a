"""A short run of the comparison with the exact solver; see `gangs.py` for a long one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from differential.gang_case import Case
from differential.gang_draws import (
    BUDGETS,
    CLASSES,
    LARGE,
    MIDDLE,
    QUEUES,
    RULES,
    SMALL,
    THEMES,
    UNITS,
    WIDE,
    draw,
)
from differential.gang_exact import cheapest
from differential.gang_rules import Terms, broken_rule, terms_of
from differential.gangs import BROKEN, EQUAL, FALSE, HIGHER, MISSED, NOT_JUDGED, Counts, judge, judged, share

DRAWS = 300


@pytest.fixture(scope="module")
def counts() -> Counts:
    return judged(range(DRAWS), processes=2)


def test_plans_for_gangs_break_no_rule(counts: Counts) -> None:
    assert counts.of()[BROKEN] == 0


def test_gangs_that_have_places_are_not_refused_for_good(counts: Counts) -> None:
    assert counts.of()[FALSE] == 0
    assert counts.of()[MISSED] == 0


def test_plans_for_gangs_cost_the_least(counts: Counts) -> None:
    assert share(counts.of()) >= 0.98
    assert share(counts.of(band=SMALL)) >= 0.99
    assert sum(counts.of()[what] for what in HIGHER) == 0
    assert counts.of()[NOT_JUDGED] <= 3


@pytest.mark.parametrize(
    ("seed", "theme", "band"),
    [
        # Pods that members could be near have to go, or members begin in another domain.
        (682, RULES, SMALL),
        (1011726, RULES, MIDDLE),
        (1002948, RULES, LARGE),
        # Four classes, of which not all members have to be placed.
        (1283, CLASSES, LARGE),
        (3000545, CLASSES, LARGE),
        # Budgets and guarantees over thirty nodes.
        (284, QUEUES, LARGE),
        (3000421, BUDGETS, LARGE),
        # Two templates of one size in a queue; classes of which one is placed first.
        (2001850, QUEUES, LARGE),
        (2003556, RULES, LARGE),
        # Eight units, and six.
        (1853, UNITS, MIDDLE),
        (3000381, UNITS, LARGE),
        # Of three sets that keep racks closed the first and the last.
        (1098, WIDE, MIDDLE),
    ],
)
def test_plans_that_cost_more_once_cost_the_least(seed: int, theme: str, band: str) -> None:
    verdict = judge(seed, theme, band)

    assert verdict.what == EQUAL, verdict.text


def tiny(seed: int, theme: str) -> Case:
    """Return a case of two nodes, four pods and two or three members."""
    case = draw(seed, theme, SMALL)
    pods = tuple(pod for pod in case.pods if pod.node < 2)[:5]
    classes = [replace(one, count=min(one.count, 2)) for one in case.classes[:2]]
    return replace(
        case,
        nodes=case.nodes[:2],
        pods=pods,
        classes=tuple(replace(one, nodes=frozenset()) for one in classes),
        must=min(case.must, sum(one.count for one in classes), 3),
    )


def all_plans(case: Case) -> Iterator[Terms]:
    """Yield the price of every plan that breaks no rule."""
    places = [(cls, node) for cls in range(len(case.classes)) for node in range(len(case.nodes))]
    for gone in product([False, True], repeat=len(case.pods)):
        victims = [pod for pod, goes in zip(case.pods, gone, strict=True) if goes]
        for members in product(range(case.must + 1), repeat=len(places)):
            placed = dict(zip(places, members, strict=True))
            exactly = sum(members) == case.must
            if exactly and not broken_rule(case, placed, {pod.uid for pod in victims}):
                yield terms_of(case, victims)


@pytest.mark.parametrize("theme", THEMES)
def test_the_integer_program_finds_the_cheapest_of_all_plans(theme: str) -> None:
    for seed in range(12):
        case = tiny(seed, theme)
        found = cheapest(case)
        assert (None if found is None else found.terms) == min(all_plans(case), default=None), seed
