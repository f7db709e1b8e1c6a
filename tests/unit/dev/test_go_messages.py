"""Go's structs and checks come from the schemas; what they cannot express is refused, not left out."""

import re
from typing import Any

import pytest

from makeway.dev import go_messages
from makeway.dev.contract_reference import GO_CONSTANTS, KINDS, NOT_IN_GO, schema
from narrowing import there

TEXT = {"type": "string", "minLength": 1}


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
