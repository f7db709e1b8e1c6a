"""The chart's values: what a planner would refuse of a policy or of queues, Helm refuses before."""

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator  # type: ignore[import-untyped] # it ships no types

from makeway.core.config.document import ConfigError
from makeway.core.policy.document import parse_policy
from makeway.dev.paths import CHART, CHECKOUT

VALIDATOR = Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
HEAD = {"apiVersion": "makeway.dev/v1", "kind": "Policy"}


def refused(values: dict[str, Any]) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(values)]


def documented() -> Iterator[Any]:
    """Every whole policy that a page shows, by itself or in its ConfigMap."""
    for page in sorted((CHECKOUT / "docs").rglob("*.md")):
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            inner = re.search(r"^  policy.yaml: \|\n((?:    .*\n|\n)+)", block, re.MULTILINE)
            text = textwrap.dedent(inner[1]) if inner else block
            if re.search(r"^kind: Policy$", text, re.MULTILINE):
                yield pytest.param(text, id=page.stem)


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(VALIDATOR.schema)

    assert refused(yaml.safe_load((CHART / "values.yaml").read_text())) == []


def test_every_value_has_a_comment_or_is_in_a_group_that_has_one() -> None:
    bare, covered, commented = [], None, False
    for line in (CHART / "values.yaml").read_text().splitlines():
        if line.strip().startswith("# -- "):
            commented = True
        elif key := re.match(r"( *)(\w+): *(.*)$", line):
            indent = len(key[1])
            if covered is not None and indent <= covered:
                covered = None
            if commented and covered is None:
                covered = indent
            elif covered is None and key[3]:
                bare.append(key[2])
            commented = False

    assert bare == []


@pytest.mark.parametrize("text", list(documented()))
def test_a_documented_policy_is_accepted_as_a_planner_accepts_it(text: str) -> None:
    parse_policy(text, "page")

    assert refused({"policy": {"document": yaml.safe_load(text)}}) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"protection": {"namespces": ["a"]}}, "namespces"),
        ({"limits": {"victimsPerOrder": 0}}, "minimum"),
        ({"limits": {"victimsPerOrder": "ten"}}, "ten"),
        ({"daemonSets": {"enabled": "yes"}}, "yes"),
        ({"namespaceModes": {"team-a": "enforced"}}, "enforced"),
        ({"disruptionBudgets": "hard"}, "hardBudgetNamespaces"),
        ({"whenUnplaned": "hold"}, "whenUnplaned"),
    ],
)
def test_a_typo_in_the_policy_is_refused_as_a_planner_refuses_it(wrong: dict[str, Any], named: str) -> None:
    document = {**HEAD, **wrong}

    with pytest.raises(ConfigError):
        parse_policy(yaml.safe_dump(document), "values")
    (message,) = refused({"policy": {"document": document}})
    assert named in message


def test_queues_are_held_to_their_form_and_may_be_left_out() -> None:
    queues = {"partitions": [{"name": "default", "queues": [{"name": "root"}]}]}

    assert refused({"queues": {"document": {}}}) == []
    assert refused({"queues": {"document": queues}}) == []
    assert refused({"queues": {"document": {"partitions": [{"queue": []}]}}}) != []


@pytest.mark.parametrize("provider", ["aks", "eks", "gke", "kind", "kubeadm", "openshift"])
def test_a_preset_is_made_of_values(provider: str) -> None:
    preset = yaml.safe_load((CHART / "presets" / f"{provider}.yaml").read_text())

    assert preset
    assert refused(preset) == []
