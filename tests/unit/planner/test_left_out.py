"""Pods and nodes on which orders failed, and what the next plans for the same preemptor make of them."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from makeway.bus.messages import EvictionOrder, Preemptor, VictimOutcome, VictimResult, Void
from makeway.bus.orders import voided
from makeway.bus.plan import NodeSelection
from makeway.planner.orders import failures as module
from makeway.planner.orders.failures import cause_of
from makeway.planner.orders.ledger import OUTCOME_LAG, Ledger
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.plan.unfiltered import FITS, answer
from narrowing import as_a, there
from unit.planner.building import (
    HIGH,
    LOW,
    NOW,
    XL,
    L,
    ask,
    make_order,
    make_outcome,
    make_pod,
    make_snapshot,
)

SHOP = "ns"


def preemptor_of(uid: str) -> Preemptor:
    return Preemptor(namespace=SHOP, name=uid, uid=uid, priority=HIGH, scheduler_name="s")


def order(order_id: str) -> EvictionOrder:
    return make_order(order_id, preemptor=preemptor_of("P"), node="n1")


def victim(uid: str, result: VictimResult, reason: str = "", message: str = "") -> VictimOutcome:
    return VictimOutcome(namespace=SHOP, name=uid, uid=uid, result=result, reason=reason, message=message)


def after(*ends: tuple[float, Any, str, tuple[VictimOutcome, ...]], ledger: Ledger | None = None) -> Ledger:
    """Return a ledger that has read orders and how they ended, each so many seconds from now."""
    ledger = Ledger() if ledger is None else ledger
    for number, (seconds, result, reason, victims) in enumerate(ends):
        ledger.ordered(order(f"o{number}"))
        ended = make_outcome(f"o{number}", result=result, victims=victims)
        ledger.ended(replace(ended, reason=reason, finished_at=NOW + timedelta(seconds=seconds)))
    return ledger


def preemptor() -> Question:
    return ask(make_pod("p", priority=HIGH, size=L))


def left_out(ledger: Ledger, seconds: float = 0) -> PassedOver:
    return ledger.pauses.left_out("P", NOW + timedelta(seconds=seconds))


FORBIDDEN = (victim("v", "failed", "forbidden", "403 Forbidden: policy x denied the request"),)


@pytest.mark.parametrize(
    ("became", "stays_out"),
    [
        (victim("v", "failed", "forbidden"), True),
        (victim("v", "failed", "budget"), True),
        (victim("v", "spared"), True),
        (victim("v", "failed", "server-error"), False),
        (victim("v", "notAttempted"), False),
        (victim("v", "deleted"), False),
    ],
)
def test_a_pod_not_evicted_is_left_out_unless_that_passes(became: VictimOutcome, stays_out: bool) -> None:
    found = left_out(after((0, "failed", "", (became,))))

    assert found.victims == (frozenset({"v"}) if stays_out else frozenset())


def test_the_times_double_from_ten_seconds_to_five_minutes() -> None:
    ledger, at, lasted = Ledger(), 0.0, []
    for number in range(7):
        ledger.ordered(order(f"o{number}"))
        ended = make_outcome(f"o{number}", result="failed", victims=FORBIDDEN)
        ledger.ended(replace(ended, finished_at=NOW + timedelta(seconds=at)))
        until = there(left_out(ledger, at).until)
        lasted.append((until - NOW).total_seconds() - at)
        at += lasted[-1]

    assert lasted == [10, 20, 40, 80, 160, 300, 300]
    assert left_out(ledger, at) == NOTHING_PASSED_OVER


@pytest.mark.parametrize(
    ("result", "reason", "at_fault"),
    [
        ("failed", "delete-refused", True),
        ("failed", "awaited-order-failed", False),
        ("refused", "victim-spared", True),
        ("refused", "unit-incomplete", True),
        ("refused", "too-many-victims", True),
        ("refused", "cap-victims", False),
        ("refused", "mode-off", False),
        ("refused", "breaker-open", False),
        ("cancelled", "braked", False),
        ("expired", "", False),
        ("succeeded", "", False),
    ],
)
def test_a_node_is_left_out_for_what_another_may_not_have(result: Any, reason: str, at_fault: bool) -> None:
    assert bool(left_out(after((0, result, reason, ()))).nodes) is at_fault


def test_a_node_is_left_out_only_once_a_pod_that_was_left_out_stays_again() -> None:
    once = after((0, "failed", "", FORBIDDEN))
    twice = after((0, "failed", "", FORBIDDEN), (1, "failed", "", FORBIDDEN))

    assert left_out(once).nodes == frozenset()
    assert left_out(twice, 1).nodes == {"n1"}


def test_a_planner_that_starts_knows_them_in_whichever_order_it_reads_the_streams() -> None:
    ledger = Ledger()
    ledger.ended(make_outcome("o0", result="failed", victims=FORBIDDEN))
    ledger.ordered(order("o0"))

    assert left_out(ledger).victims == {"v"}
    assert ledger.pauses.left_out("another", NOW) == NOTHING_PASSED_OVER


@pytest.mark.parametrize(
    ("reason", "nodes"),
    [
        ("victim-spared", {"n1"}),
        ("unit-incomplete", {"n1"}),
        ("too-many-victims", {"n1"}),
        ("late", set()),
        ("preemptor-gone", set()),
    ],
)
def test_a_node_is_left_out_where_an_order_was_not_stored_for_its_pods(reason: str, nodes: set[str]) -> None:
    ledger, void = Ledger(), Void(reason=reason, message="said the judge")
    ledger.voided(voided(order("o0"), void), void)

    assert left_out(ledger).nodes == nodes
    assert len(ledger) == 0


def test_until_an_outcome_is_read_the_node_of_the_order_of_who_asks_again_is_left_out() -> None:
    ledger = Ledger()
    ledger.ordered(order("o0"))

    unread = ledger.left_out("P", NOW)
    ledger.reserve(replace(order("o1"), preemptor=preemptor_of("Q")))
    ledger.ended(make_outcome("o0", result="cancelled"))

    assert unread == PassedOver(nodes=frozenset({"n1"}), until=NOW + OUTCOME_LAG)
    assert ledger.left_out("P", NOW) == NOTHING_PASSED_OVER
    assert ledger.left_out("Q", NOW) == NOTHING_PASSED_OVER, "an order that is about to be stored has no end"


def test_as_many_pods_and_nodes_are_left_out_as_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LEFT_OUT", 2)
    ledger = Ledger()
    many = tuple(victim(f"v{number}", "failed", "forbidden") for number in range(5))
    after((0, "failed", "", many), ledger=ledger)
    for number in range(1, 5):
        ledger.ordered(replace(order(f"o{number}"), node=f"n{number}"))
        ended = make_outcome(f"o{number}", result="failed")
        ledger.ended(replace(ended, finished_at=NOW + timedelta(seconds=number)))

    found = left_out(ledger, 4)

    assert len(found.victims) == 2
    assert found.nodes == {"n3", "n4"}, "those that would be tried again first are forgotten"


def test_a_refusal_says_what_is_left_out_and_comes_again_when_the_first_of_it_ends() -> None:
    found = left_out(after((0, "failed", "", FORBIDDEN), (1, "failed", "", FORBIDDEN)), 1)

    message, retry_at = found.told("no room", None)

    assert message == (
        "no room; preemption has just failed on 1 node; 1 pod is left out for now, as impossible to evict: "
        "403 Forbidden: policy x denied the request"
    )
    assert retry_at == NOW + timedelta(seconds=11)
    assert found.told("no room", NOW) == (message, NOW)
    assert NOTHING_PASSED_OVER.told("no room", None) == ("no room", None)


def test_a_cause_names_no_pod_and_of_another_namespace_no_object() -> None:
    own = victim("v", "failed", "forbidden", '403 Forbidden: pods "v" is forbidden: policy x')
    others = replace(own, namespace="elsewhere")
    long = replace(own, message="é" * 300)

    assert cause_of(own, SHOP) == '403 Forbidden: pods "…" is forbidden: policy x'
    assert cause_of(others, SHOP) == "403 Forbidden"
    assert cause_of(replace(others, message="x"), SHOP) == "forbidden"
    assert len(cause_of(long, SHOP).encode()) == 200


@pytest.mark.parametrize(
    ("nodes", "answered"),
    [
        (NodeSelection(), ["n2"]),
        (NodeSelection(all_but=True), ["n2"]),
        (NodeSelection(names=("n1", "n2")), ["n2"]),
        (NodeSelection(names=("n1",)), []),
        (NodeSelection(names=("n2",), all_but=True), []),
    ],
)
def test_no_plan_has_a_left_out_node_however_named(nodes: NodeSelection, answered: list[str]) -> None:
    snapshot = make_snapshot(["n1", "n2"], [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", LOW, XL)])
    left = PassedOver(nodes=frozenset({"n1"}), until=NOW + timedelta(seconds=9))
    asked = dataclasses.replace(preemptor(), nodes=nodes).leaving_out(left)

    found = answer(snapshot, asked, NOW, PlanCache())

    assert ([one.node for one in found.candidates] if isinstance(found, Plan) else []) == answered
    if isinstance(found, PlanRefusal):
        assert found.message.endswith("preemption has just failed on 1 node")
        assert found.retry_at == left.until


def test_a_pod_fits_on_a_node_that_is_left_out() -> None:
    snapshot = make_snapshot(["n1"], [])
    asked = preemptor().leaving_out(PassedOver(nodes=frozenset({"n1"}), until=NOW))

    found = as_a(
        PlanRefusal, answer(snapshot, dataclasses.replace(asked, nodes=NodeSelection()), NOW, PlanCache())
    )

    assert (found.reason, found.retry_at) == (FITS, None)
