"""The schema for editors says what the reader does."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it ships no types

from makeway.core.policy.document import PolicyDocument
from makeway.core.policy.section import PolicySection
from makeway.dev.config_reference import editor_schema, reference_page
from unit.core.test_policy import HEAD, policies, refused

REFERENCE = Path(__file__).parents[3] / "docs/reference"
SCHEMA = json.loads((REFERENCE / "policy.schema.json").read_text())


@given(policies())
def test_what_the_reader_accepts_the_schema_accepts(document: dict[str, Any]) -> None:
    assert list(Draft202012Validator(SCHEMA).iter_errors(document)) == []


@pytest.mark.parametrize(
    "line",
    [
        "mode: enforced",
        "limit: {}",
        "limits: {victimsPerOrder: 0}",
        "limits: {victimsPerOrder: many}",
        "protection: {namespaces: [Team-A]}",
        "protection: {namespaces: kube-system}",
        "namespaceModes: {a.b: observe}",
        "daemonSets: {preemption_start_delay: 10 s}",
        "daemonSets: {preemption_start_delay: -1}",
        "daemonSets: {enabled: 2}",
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(line: str) -> None:
    assert refused(HEAD + line)

    assert list(Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(HEAD + line)))


@pytest.mark.parametrize("name", ["policy", "queues"])
def test_the_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(json.loads((REFERENCE / f"{name}.schema.json").read_text()))


def test_every_field_is_on_the_page_and_a_field_without_a_description_is_told() -> None:
    page = reference_page(PolicyDocument)
    assert all(f"`{name}`" in page for name in SCHEMA["properties"])

    class Undescribed(PolicySection, frozen=True):
        """It says nothing of its field."""

        colour: str = ""

    with pytest.raises(ValueError, match="Attributes and fields differ in colour"):
        editor_schema(Undescribed, "https://example.com", "Undescribed")
