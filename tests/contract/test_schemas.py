"""The JSON Schemas say what the decoders do, and the AsyncAPI document refers to things that exist."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError  # type: ignore[import-untyped] # it ships no types

from makeway.bus.streams import configs as streams
from makeway.bus.subjects import Subjects

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
GOLDEN_FILES = sorted((ROOT / "bus/testdata").glob("*.json"))
INVALID_FILES = sorted((ROOT / "bus/testdata/malformed").glob("*.invalid.*.json"))


def validator(kind: str) -> Draft202012Validator:
    schema = json.loads((REFERENCE / "schemas" / f"{kind}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def validate(name: str, message: Any) -> None:
    """Validate a message, and what an envelope holds, too."""
    kind = name.split(".", maxsplit=1)[0]
    stem = kind.removesuffix("-envelope")
    if stem == kind:
        validator(kind).validate(message)
        return
    validator("envelope").validate(message)
    validator(stem).validate(message["data"])


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.stem)
def test_every_golden_file_is_valid_under_its_schema(path: Path) -> None:
    validate(path.name, json.loads(path.read_text()))


# What a schema cannot say, or the format checker here does not know.
BEYOND_SCHEMAS = {
    "order-envelope.invalid.another-content.json",
    "order-envelope.invalid.no-time-zone.json",
    "order-envelope.invalid.data-without-time-zone.json",
}


@pytest.mark.parametrize(
    "path", [p for p in INVALID_FILES if p.name not in BEYOND_SCHEMAS], ids=lambda path: path.stem
)
def test_what_the_decoders_find_invalid_is_invalid_under_the_schema(path: Path) -> None:
    with pytest.raises(ValidationError):
        validate(path.name, json.loads(path.read_text()))


def test_every_message_of_the_schemas_is_described_field_names_as_on_the_wire() -> None:
    for path in sorted((REFERENCE / "schemas").glob("*.json")):
        schema = json.loads(path.read_text())
        for definition in (schema, *schema.get("$defs", {}).values()):
            assert definition.get("description"), (path.name, definition.get("title"))
            assert all("_" not in name for name in definition["properties"])


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = yaml.safe_load((REFERENCE / "asyncapi.yaml").read_text())

    for reference in references(document):
        path, _, pointer = reference.partition("#")
        if path:
            assert (REFERENCE / path).is_file(), reference
            continue
        node = document
        for part in pointer.strip("/").split("/"):
            node = node[part]
        assert node, reference


def test_the_asyncapi_document_has_a_channel_for_what_every_stream_holds() -> None:
    document = yaml.safe_load((REFERENCE / "asyncapi.yaml").read_text())
    addresses = [c["address"] for c in document["channels"].values() if c["address"]]

    for config in streams.stream_configs(Subjects()):
        (pattern,) = config["subjects"]
        assert any(address.startswith(pattern.removesuffix(">")) for address in addresses), pattern
