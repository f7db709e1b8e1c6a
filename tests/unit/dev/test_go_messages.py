"""Go's structs and checks come from the schemas; what they cannot express is refused, not left out."""

import re
from typing import Any

import pytest

from makeway.dev import go_messages
from makeway.dev.contract_reference import GO_CONSTANTS, KINDS, NOT_IN_GO, schema
from narrowing import there

TEXT = {"type": "string", "minLength": 1}
INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
TOKEN = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,128}(?![\s\S])"}


def checks_of(required: bool, shape: dict[str, Any]) -> str:
    """What is checked of the field of a struct that has one."""
    definition = {
        "description": "One.",
        "properties": {"one": shape},
        "required": ["one"] if required else [],
    }
    found = there(
        re.search(
            r'`json:"one(?:,omitempty)?"(?: check:"(.*)")?`', go_messages.go_struct("Whole", definition)
        )
    )
    return found[1] or ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("preemptorUid", "PreemptorUID"),
        ("uid", "UID"),
        ("apiVersion", "APIVersion"),
        ("pdbViolations", "PDBViolations"),
        ("decisionId", "DecisionID"),
        ("specversion", "SpecVersion"),
        ("notSynced", "NotSynced"),
    ],
)
def test_names_are_those_that_go_gives_them(name: str, expected: str) -> None:
    assert go_messages.go_name(name) == expected


def test_a_name_that_is_not_in_camel_case_is_refused() -> None:
    with pytest.raises(ValueError, match="kebab-case"):
        go_messages.go_name("kebab-case")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({}, "json.RawMessage"),
        (TEXT, "string"),
        (INT64, "int64"),
        ({"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}, "int32"),
        ({"type": "string", "format": "date-time"}, "Time"),
        ({"anyOf": [{"$ref": "#/$defs/Refusal"}, {"type": "null"}]}, "*Refusal"),
        ({"type": "array", "items": TEXT}, "[]string"),
        ({"type": "object", "additionalProperties": {}}, "map[string]json.RawMessage"),
    ],
)
def test_a_field_has_the_go_type_that_holds_all_its_values(shape: dict[str, Any], expected: str) -> None:
    assert go_messages.go_type(shape) == expected


@pytest.mark.parametrize(
    ("required", "shape", "expected"),
    [
        (True, TEXT, "required"),
        (False, TEXT, ""),
        (True, TOKEN, "required,token"),
        (False, TOKEN, "token"),
        (True, {"enum": ["a", "b"]}, "required,oneOf=a|b"),
        (True, {"type": "string", "format": "date-time"}, "required"),
        (True, {}, "required"),
        (True, {"type": "integer", "minimum": 0, "maximum": 9}, "least=0,most=9"),
        (True, INT64, ""),
        (
            False,
            {"anyOf": [{"type": "integer", "minimum": 1, "exclusiveMaximum": 9}, {"type": "null"}]},
            "least=1,most=8",
        ),
        (True, {"type": "array", "items": {"type": "string"}, "maxItems": 4}, "required,longest=4"),
        (
            False,
            {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}},
            "least=0,most=9",
        ),
        (True, {"type": "object", "additionalProperties": {"enum": ["a", "b"]}}, "required,oneOf=a|b"),
    ],
)
def test_what_a_schema_demands_is_checked(required: bool, shape: dict[str, Any], expected: str) -> None:
    assert checks_of(required, shape) == expected


@pytest.mark.parametrize(
    ("required", "shape"),
    [
        (True, {"type": "string"}),
        (True, {"type": "string", "pattern": "^a$"}),
        (False, {"type": "array", "items": TEXT}),
        (False, {"type": "array", "items": {"type": "string"}, "minItems": 1}),
        (False, {"type": "string", "maxLength": 9}),
        (False, {"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 3}),
        (False, {"type": "number"}),
    ],
)
def test_a_demand_that_go_has_no_check_for_is_an_error(required: bool, shape: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Go"):
        checks_of(required, shape)


def test_every_demand_of_the_schemas_on_a_required_text_is_in_gos_checks() -> None:
    definitions = go_messages.structs([schema(kind, KINDS[kind]) for kind in KINDS if kind not in NOT_IN_GO])
    file = go_messages.messages_file(definitions, GO_CONSTANTS)

    for name, definition in definitions.items():
        body = there(re.search(rf"type {name} struct {{(.*?)\n}}\n", file, re.DOTALL))
        for field in definition.get("required", ()):
            shape = definition["properties"][field]
            if shape.get("type") == "string" or "enum" in shape:
                assert re.search(rf'`json:"{field}" check:"required[,"]', body[1]), (name, field)
