"""What the brake's ConfigMap means, as the plugin understands it too, and what it does to a policy."""

import json
from pathlib import Path
from typing import Any

import pytest

from makeway.core.policy.brake import LONGEST_REASON, RELEASED, Brake, braked, data_of, parse_brake
from makeway.core.policy.document import Policy, Protection

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "bus/testdata/brake/cases.json").read_text()
)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_cannot_be_understood_counts_as_set_everywhere(case: dict[str, Any]) -> None:
    brake = parse_brake(case["data"])

    assert brake.engaged
    assert (brake.everywhere, sorted(brake.namespaces)) == (case["everywhere"], case["namespaces"])
    assert all(brake.holds(namespace) for namespace in case["namespaces"] or ["any"])
    assert brake.holds("another") == case["everywhere"]


@pytest.mark.parametrize(
    "brake",
    [
        Brake(everywhere=True, since="2026-11-23T03:40:10Z", by="ops", reason="too many evictions"),
        Brake(namespaces=frozenset({"a", "b"}), by="ops"),
    ],
)
def test_what_is_written_is_read_back(brake: Brake) -> None:
    assert parse_brake(data_of(brake)) == brake


def test_a_set_brake_turns_the_mode_off_and_leaves_the_protection() -> None:
    policy = Policy(
        namespace_modes={"a": "enforce", "b": "observe"}, protection=Protection(namespaces=("kube-system",))
    )

    everywhere = braked(policy, Brake(everywhere=True))
    assert [everywhere.mode_for(namespace) for namespace in ("", "a", "b")] == ["off"] * 3
    assert everywhere.protection == policy.protection

    some = braked(policy, Brake(namespaces=frozenset({"a", "c"})))
    assert [some.mode_for(namespace) for namespace in ("", "a", "b", "c")] == [
        "enforce",
        "off",
        "observe",
        "off",
    ]
    assert braked(policy, RELEASED) is policy


def test_it_says_who_set_it_and_why() -> None:
    brake = parse_brake({"mode": "off", "since": "2026-11-23T03:40:10Z", "by": "ops", "reason": "too many"})
    assert brake.describe() == "the brake is set everywhere since 2026-11-23T03:40:10Z by ops: too many"
    assert (RELEASED.describe(), RELEASED.scope(), brake.scope()) == ("", "", "everywhere")
    assert "says mode 'on'" in parse_brake({"mode": "on"}).describe()


def test_what_people_wrote_stays_on_one_line_and_is_cut() -> None:
    forged = parse_brake(
        {"mode": "off", "by": "ops\r", "reason": f"why\n  ✓ brake: not set\x1b[31m{'x' * 600}"}
    )

    assert forged.describe().startswith("the brake is set everywhere by ops: why   ✓ brake: not set [31mxxx")
    assert forged.describe().isprintable()
    assert len(forged.reason) == LONGEST_REASON
