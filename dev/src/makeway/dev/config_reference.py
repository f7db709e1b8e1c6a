"""What a configuration may hold, for editors and readers: a JSON Schema and a page, from the struct itself.

Fields are described in the `Attributes` of the structs' docstrings; one without a description is a
defect of the struct, and told as such. Used by `make reference` alone.
"""

from __future__ import annotations

import inspect as python
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec import inspect

from makeway.core.config.document import expected, join_path, unwrapped
from makeway.core.config.duration import EXPECTED, as_text

_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): ", re.MULTILINE)
_DURATION: Final = r"^\+?([0-9]+|([0-9]*\.?[0-9]*(ns|us|µs|ms|s|m|h))+)$"
_SCALARS: Final[dict[type[inspect.Type], str]] = {
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.StrType: "string",
}


def editor_schema(shape: type[msgspec.Struct], address: str, title: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a configuration, with every struct in it under its name."""
    definitions: dict[str, dict[str, Any]] = {}
    _define(_struct(shape), definitions)
    own = definitions.pop(shape.__name__)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": address,
        **own,
        "title": title,
        "$defs": dict(sorted(definitions.items())),
    }


def reference_page(shape: type[msgspec.Struct]) -> str:
    """Return tables of all fields in Markdown, one for each struct, outermost first."""
    parts: list[str] = []
    seen: set[type] = set()
    waiting: list[tuple[str, type[msgspec.Struct]]] = [("", shape)]
    while waiting:
        path, one = waiting.pop(0)
        if one in seen:
            continue
        seen.add(one)
        head, texts = _described(one)
        rows = ["| Field | Value | Default | Meaning |", "| --- | --- | --- | --- |"]
        for field in sorted(_struct(one).fields, key=lambda field: not field.required):
            rows.append(
                f"| `{field.encode_name}` | {_value(field.type)} | {_default(field)} | {texts[field.name]} |"
            )
            waiting += [
                (join_path(path, field.encode_name) + end, inner) for inner, end in _inner(field.type, "")
            ]
        heading = [f"## {path}"] if path else []
        parts.append("\n\n".join([*heading, head, "\n".join(rows)]))
    return "\n\n".join(parts) + "\n"


# ------------------------------------------------------------------------------------------ schema


def _define(type_: inspect.StructType, definitions: dict[str, dict[str, Any]]) -> None:
    if type_.cls.__name__ in definitions:
        return
    head, texts = _described(type_.cls)
    definition: dict[str, Any] = {"description": head, "type": "object"}
    definitions[type_.cls.__name__] = definition
    properties = {}
    for field in sorted(type_.fields, key=lambda field: not field.required):
        schema = _schema(field.type, definitions)
        if not field.required:
            # A key with nothing behind it is the same as no key.
            schema = {"anyOf": [schema, {"type": "null"}]}
        default = _plain_default(field)
        properties[field.encode_name] = {
            "description": texts[field.name],
            **schema,
            **({} if default is None else {"default": default}),
        }
    definition["properties"] = properties
    definition["required"] = [field.encode_name for field in type_.fields if field.required]
    definition["additionalProperties"] = False


def _schema(type_: inspect.Type, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    type_, extra = unwrapped(type_)
    if "scalar" in extra:
        return {"type": ["string", "number"]}
    match type_:
        case inspect.StructType():
            _define(type_, definitions)
            return {"$ref": f"#/$defs/{type_.cls.__name__}"}
        case inspect.DictType():
            values = _schema(type_.value_type, definitions)
            return {
                "type": "object",
                "propertyNames": _schema(type_.key_type, definitions),
                "additionalProperties": values,
            }
        case inspect.VarTupleType():
            return {"type": "array", "items": _schema(type_.item_type, definitions)}
        case inspect.LiteralType(values=(only,)):
            return {"const": only}
        case inspect.LiteralType():
            return {"enum": list(type_.values)}
        case inspect.TimeDeltaType():
            return {"type": ["string", "integer"], "minimum": 0, "pattern": _DURATION}
        case inspect.AnyType():
            return {}
    schema: dict[str, Any] = {"type": _SCALARS[type(type_)]}
    if isinstance(type_, inspect.IntType):
        bounds = {"minimum": type_.ge, "maximum": type_.le}
        schema |= {name: bound for name, bound in bounds.items() if bound is not None}
    elif isinstance(type_, inspect.StrType) and type_.pattern:
        # The end of the text is `\Z` in Python and `$` in JSON Schema's dialect.
        schema["pattern"] = type_.pattern.replace(r"\Z", "$")
    return schema


# -------------------------------------------------------------------------------------------- page


def _value(type_: inspect.Type) -> str:
    """What to write, for a table."""
    bare = unwrapped(type_)[0]
    match bare:
        case inspect.StructType():
            return "a mapping, below"
        case inspect.DictType():
            return f"a mapping to {_value(bare.value_type)}"
        case inspect.VarTupleType():
            return f"a list of: {_value(bare.item_type)}"
        case inspect.LiteralType():
            return " or ".join(f"`{value}`" for value in bare.values)
        case inspect.AnyType():
            return "anything"
        case inspect.TimeDeltaType():
            return EXPECTED
    return expected(type_)


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    default = _plain_default(field)
    return "" if default in (None, [], {}) else f"`{default if isinstance(default, str) else _json(default)}`"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _plain_default(field: inspect.Field) -> Any:
    """A default as JSON has it; None where there is none that says something by itself."""
    if field.default is msgspec.NODEFAULT or isinstance(field.default, msgspec.Struct):
        return None
    if isinstance(field.default, timedelta):
        return as_text(field.default)
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _inner(type_: inspect.Type, end: str) -> Iterator[tuple[type[msgspec.Struct], str]]:
    """The structs in a field's type, and what its path ends with."""
    type_, _ = unwrapped(type_)
    if isinstance(type_, inspect.StructType):
        yield type_.cls, end
    elif isinstance(type_, inspect.VarTupleType):
        yield from _inner(type_.item_type, end + "[]")


# ------------------------------------------------------------------------------------- docstrings


def _struct(shape: type[msgspec.Struct]) -> inspect.StructType:
    type_ = inspect.type_info(shape)
    assert isinstance(type_, inspect.StructType)  # noqa: S101 - for the type checker: it is one by argument
    return type_


def _described(shape: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """A struct's docstring, and the description of each of its fields.

    Raises:
        ValueError: a field has none, or one is described that is not there.
    """
    head, texts = _attributes(shape)
    for base in shape.__mro__[1:]:
        if issubclass(base, msgspec.Struct):
            texts = {**_attributes(base)[1], **texts}
    names = set(shape.__struct_fields__)
    if wrong := names.symmetric_difference(texts):
        raise ValueError(f"{shape.__name__}: Attributes and fields differ in {', '.join(sorted(wrong))}")
    return head, texts


def _attributes(shape: type) -> tuple[str, dict[str, str]]:
    head, _, rest = python.cleandoc(shape.__doc__ or "").partition("\nAttributes:\n")
    parts = _ATTRIBUTE.split(rest)[1:]
    texts = {name: " ".join(text.split()) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    return " ".join(head.split()), texts
