"""A fault proxy's rules apply to what they name, as often as they say."""

import pytest

from makeway.dev.fault_rules import FaultRule, FaultRules

pytestmark = pytest.mark.tools

POD = "/api/v1/namespaces/shop/pods/a"


def rules(*wanted: FaultRule) -> FaultRules:
    made = FaultRules(seed=1)
    for rule in wanted:
        made.add(rule)
    return made


def hits(made: FaultRules, method: str = "GET", path: str = POD, times: int = 5) -> int:
    return sum(made.for_request("evictor", method, path) is not None for _ in range(times))


def test_a_rule_applies_as_often_as_it_says() -> None:
    assert hits(rules(FaultRule(component="evictor", action="answer", count=3))) == 3


def test_a_rule_for_each_applies_so_often_to_every_method_and_path() -> None:
    made = rules(FaultRule(component="evictor", action="answer", count=2, each=True))

    assert [hits(made), hits(made, "DELETE"), hits(made, path=POD + "b?x=1"), hits(made, path=POD + "b")] == [
        2,
        2,
        2,
        0,
    ]


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule(component="planner", action="answer"),
        FaultRule(component="evictor", action="answer", method="PATCH|DELETE"),
        FaultRule(component="evictor", action="answer", path="/nodes/"),
        FaultRule(component="evictor", action="skip"),
    ],
    ids=["another component", "another method", "another path", "an action on events"],
)
def test_a_rule_leaves_other_requests_alone(rule: FaultRule) -> None:
    assert hits(rules(rule)) == 0


def test_a_rule_on_events_looks_at_the_event() -> None:
    made = rules(FaultRule(component="planner", action="skip", path="/pods", event='"DELETED".*"name":"a"'))

    assert made.for_event("planner", "/api/v1/pods?watch=1", b'{"type":"ADDED","name":"a"}') is None
    assert made.for_event("planner", "/api/v1/pods?watch=1", b'{"type":"DELETED","name":"a"}') is not None
