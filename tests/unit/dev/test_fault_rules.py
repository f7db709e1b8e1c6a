"""A fault proxy's rules apply to what they name, as often as they say."""

import msgspec
import pytest

from makeway.dev.fault_rules import FaultRule, FaultRules, expired_event, refusal

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


def test_chances_are_the_same_with_the_same_seed() -> None:
    rule = FaultRule(component="evictor", action="answer", probability=0.5, count=100)
    first, second = (
        [made.for_request("evictor", "GET", POD) is not None for _ in range(40)]
        for made in (rules(rule), rules(rule))
    )

    assert first == second
    assert 5 < sum(first) < 35


def test_what_was_applied_is_told_until_the_rules_are_cleared() -> None:
    made = rules(FaultRule(component="evictor", action="answer", status=409))
    hits(made)

    assert [(a.action, a.method, a.path, a.status) for a in made.applied] == [("answer", "GET", POD, 409)]
    made.clear()
    assert made.applied == []
    assert hits(made) == 0


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'\\('"):
        FaultRules().add(FaultRule(component="evictor", action="answer", path="("))


def test_throttling_is_answered_in_plain_text_as_priority_and_fairness_does() -> None:
    body, headers = refusal(429, 2)

    assert body == b"Too many requests, please try again later.\n"
    assert headers == {"Retry-After": "2", "Content-Type": "text/plain"}


def test_other_refusals_are_status_objects() -> None:
    body, headers = refusal(409, 0)

    assert msgspec.json.decode(body)["reason"] == "Conflict"
    assert headers == {"Content-Type": "application/json"}


def test_an_expired_watch_ends_with_an_error_event() -> None:
    event = msgspec.json.decode(expired_event())

    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
