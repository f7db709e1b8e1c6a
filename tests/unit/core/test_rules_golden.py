"""Which pods stay, or wait: the cases of bus/testdata/rules, which hold the scheduler's plugins to it too."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from makeway.core.k8s.budget import budget_of
from makeway.core.k8s.objects import Pod, PodDisruptionBudget, PriorityClass
from makeway.core.policy import protection, toleration
from makeway.core.policy.delay import UnreadableDelay, delay_of
from makeway.core.policy.document import Protection
from makeway.core.policy.exemption import NOT_EXEMPT
from makeway.core.policy.facts import facts_of
from makeway.core.policy.toleration_record import UNREAD_RECORD, parse_record

_TABLES = Path(__file__).parents[3] / "bus/testdata/rules"


def cases(table: str) -> pytest.MarkDecorator:
    """Return the cases of a table, each under its name."""
    read = json.loads((_TABLES / f"{table}.json").read_text())
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in read])


def pod_of(case: dict[str, Any]) -> Pod:
    return msgspec.convert(case["victim"], Pod)


@cases("toleration")
def test_a_priority_class_exempts_its_pods_in_every_language(case: dict[str, Any]) -> None:
    priority_class = case["priorityClass"] and msgspec.convert(case["priorityClass"], PriorityClass)

    entries = case.get("record")
    record = UNREAD_RECORD if entries is None else parse_record(entries)

    found = toleration.can_tolerate_preemption(
        facts_of(pod_of(case)),
        priority_class,
        case["preemptorPriority"],
        datetime.fromisoformat(case["now"]),
        record,
    )

    assert found.exempt is case["exempt"]


@cases("protection")
def test_a_policy_protects_pods_in_every_language(case: dict[str, Any]) -> None:
    exemption = protection.exemption_of(
        facts_of(pod_of(case)), msgspec.convert(case["protection"], Protection)
    )

    assert ("" if exemption == NOT_EXEMPT else exemption.rule) == case["reason"]


@cases("budgets")
def test_a_hard_budget_counts_the_pods_whose_eviction_the_api_server_counts(case: dict[str, Any]) -> None:
    pod = pod_of(case).metadata
    hard = case["hardBudgetNamespaces"]
    if "*" not in hard and pod.namespace not in hard:
        return

    budgets = [budget_of(msgspec.convert(budget, PodDisruptionBudget)) for budget in case["budgets"]]
    counted = any(budget.covers_eviction(pod.namespace, pod.name, pod.labels or {}) for budget in budgets)

    assert counted is case["counted"]
    assert case["covered"] or not counted


@cases("preemption-delay")
def test_a_priority_class_delays_preemption_in_every_language(case: dict[str, Any]) -> None:
    priority_class = case["priorityClass"] and msgspec.convert(case["priorityClass"], PriorityClass)

    found = delay_of(priority_class)

    assert isinstance(found, UnreadableDelay) is not case["readable"]
    assert isinstance(found, UnreadableDelay) or found == timedelta(milliseconds=case["delayMilliseconds"])


def test_a_delay_that_cannot_be_read_says_what_is_expected() -> None:
    [case] = [
        one for one in json.loads((_TABLES / "preemption-delay.json").read_text()) if one["name"] == "no unit"
    ]

    found = delay_of(msgspec.convert(case["priorityClass"], PriorityClass))

    assert str(found) == (
        "annotation makeway.dev/preemption-delay: '30' is no duration; "
        "expected a duration such as 30s or 5m, at most 1h"
    )
