"""Rules of who may preempt whom: what is refused, what is warned of, and what bands stand for."""

import json
from typing import Any

import pytest

from makeway.core.config.document import ConfigError
from makeway.core.policy.document import parse_policy
from makeway.core.policy.preemption import UNREAD, first_rule
from makeway.core.policy.restrictions import restrictions

GOLD = {"labelSelector": {"matchLabels": {"tier": "gold"}}}
NOT_GOLD = {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}}
PROD = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
BATCH = {"priorityClasses": ["batch"]}


def text(*rules: dict[str, Any], bands: tuple[dict[str, Any], ...] = ()) -> str:
    named = [{"name": f"r{number}"} | rule for number, rule in enumerate(rules)]
    document = {"apiVersion": "makeway.dev/v1", "kind": "Policy"}
    return json.dumps(document | {"preemption": {"rules": named, "bands": bands}})


def warnings(*rules: dict[str, Any]) -> tuple[str, ...]:
    return parse_policy(text(*rules), "policy.yaml").warnings


def allow(**more: Any) -> dict[str, Any]:
    return {"action": "allow"} | more


def deny(**more: Any) -> dict[str, Any]:
    return {"action": "deny"} | more


@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        (
            (deny(minimumRunTime="30m"),),
            "write action: allow, which then holds once a victim has run so long",
        ),
        ((deny(name="one"), deny(name="one")), "is the name of preemption.rules[0] too"),
        ((deny(name="band-1"),), "begins with band-"),
        ((deny(victims={"queues": ["team-a"]}),), "a queue's full path"),
        ((deny(victims={"labelSelector": {"matchLabels": {"a b": "c"}}}),), "is no label key"),
        (
            (deny(victims={"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),),
            "In on 'a' needs a value",
        ),
        (tuple(deny() for _ in range(61)), "write at most 60"),
    ],
)
def test_what_is_refused(rules: tuple[dict[str, Any], ...], wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"policy\.yaml") as refused:
        parse_policy(text(*rules), "policy.yaml")

    assert wrong in str(refused.value)


def test_a_band_of_no_class_is_refused_since_it_would_mean_all() -> None:
    with pytest.raises(ConfigError, match="write at least 1 value"):
        parse_policy(text(bands=({"classes": [], "never": "own"},)), "policy.yaml")


@pytest.mark.parametrize(
    ("rules", "warned"),
    [
        ((deny(victims=GOLD),), "can keep it from being preempted by a label"),
        ((allow(victims=GOLD, minimumRunTime="1m"),), "can keep it from being preempted by a label"),
        ((deny(preemptors=NOT_GOLD),), "can let it preempt more by a label"),
        ((allow(preemptors=GOLD), deny()), "can let it preempt more by a label"),
        ((allow(victims=NOT_GOLD), deny()), "can keep it from being preempted by a label"),
    ],
)
def test_what_is_warned_of(rules: tuple[dict[str, Any], ...], warned: str) -> None:
    assert [one for one in warnings(*rules) if warned in one] != []


@pytest.mark.parametrize(
    "rules",
    [
        (deny(victims=PROD),),
        (deny(preemptors=GOLD),),  # a label that makes its own pods preempt less
        (allow(victims=GOLD), deny(victims=PROD)),  # and one that makes them easier to preempt
        (deny(victims=NOT_GOLD),),
        (deny(victims=PROD | BATCH), deny(victims=PROD)),
        (allow(victims=BATCH, minimumRunTime="30m"),),
    ],
)
def test_what_is_not_warned_of(rules: tuple[dict[str, Any], ...]) -> None:
    assert warnings(*rules) == ()


def test_a_band_is_a_rule_behind_all_others() -> None:
    policy = parse_policy(
        text(allow(victims=PROD), bands=({"classes": ["prod", "live"], "never": "own"},)), "policy.yaml"
    )
    prod, live = (UNREAD._replace(priority_class=name) for name in ("prod", "live"))
    allowed = live._replace(namespace={"env": "prod"})

    found = [first_rule(policy.preemption.table, prod, victim) for victim in (live, allowed, UNREAD)]

    assert [one and (one.name, one.action) for one in found] == [("band-1", "deny"), ("r0", "allow"), None]


def test_rules_and_bands_keep_kube_scheduler_from_preempting_without_a_plan() -> None:
    rules = parse_policy(text(deny(victims=PROD)), "policy.yaml")
    bands = parse_policy(text(bands=({"classes": ["prod"], "never": "own"},)), "policy.yaml")

    found = [restrictions(policy, queues=False, tolerating=()).protecting for policy in (rules, bands)]

    assert found == [("preemption.rules",), ("preemption.bands",)]
