"""Go's structs and checks come from the schemas; what they cannot express is refused, not left out."""

from __future__ import annotations

import re
from typing import Any

import pytest

from makeway.dev import go_messages
from makeway.dev.contract_reference import GO_CONSTANTS, KINDS, NOT_IN_GO, schema

TEXT = {"type": "string", "minLength": 1}
INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
TOKEN = {"type": "string", "pattern": r"^[A-Za-z0-9_-]{1,128}(?![\s\S])"}


def checks_of(required: bool, shape: dict[str, Any], **others: dict[str, Any]) -> str:
    """The checks of struct Whole, which has one field."""
    definitions = {
        "Whole": {
            "title": "Whole",
            "description": "One.",
            "properties": {"one": shape},
            "required": ["one"] if required else [],
        },
        **{name: {"title": name, "description": "Other.", **other} for name, other in others.items()},
    }
    return go_messages.checks_file(definitions)


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
        (True, TEXT, 'present("one", m.One != "")'),
        (True, TOKEN, 'token("one", m.One)'),
        (False, TOKEN, 'token("one", m.One)'),
        (True, {"enum": ["a", "b"]}, 'oneOf("one", m.One, "a", "b")'),
        (True, {"type": "string", "format": "date-time"}, 'moment("one", m.One)'),
        (True, {}, 'present("one", m.One != nil)'),
        (False, {"type": "integer", "minimum": 0, "maximum": 9}, 'within("one", m.One, 0, 9)'),
        (
            False,
            {"anyOf": [{"type": "integer", "minimum": 1, "exclusiveMaximum": 9}, {"type": "null"}]},
            'within("one", valueOr(m.One, 1), 1, 8)',
        ),
        (
            False,
            {"type": "array", "items": {"type": "string"}, "maxItems": 4},
            'atMost("one", len(m.One), 4)',
        ),
        (
            False,
            {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}},
            "return within(at, v, 0, 9)",
        ),
        (
            False,
            {"type": "object", "additionalProperties": {"enum": ["a", "b"]}},
            'return cmp.Or(present(at, v != ""), oneOf(at, v, "a", "b"))',
        ),
    ],
)
def test_what_a_schema_demands_is_checked(required: bool, shape: dict[str, Any], expected: str) -> None:
    assert expected in checks_of(required, shape)


def test_a_struct_is_checked_where_only_one_within_it_is() -> None:
    inner = {"properties": {"name": TEXT}, "required": ["name"]}
    middle = {"properties": {"inner": {"type": "array", "items": {"$ref": "#/$defs/Inner"}}}}

    checks = checks_of(False, {"$ref": "#/$defs/Middle"}, Middle=middle, Inner=inner)

    assert 'inside("one", &m.One)' in checks
    assert 'each("inner", m.Inner)' in checks


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
    checks = go_messages.checks_file(definitions)
    file = go_messages.messages_file(definitions, GO_CONSTANTS)

    for name, definition in definitions.items():
        assert f"type {name} struct {{" in file
        wanted = [
            field
            for field in definition.get("required", ())
            if definition["properties"][field].get("type") == "string"
            or "enum" in definition["properties"][field]
        ]
        body = re.search(rf"func \(m \*{name}\) problem.*?\n}}\n", checks, re.DOTALL)
        for field in wanted:
            assert body is not None, name
            assert f'present("{field}"' in body[0] or f'moment("{field}"' in body[0]
