"""A YAML tree held to a struct: each value read as its field's type says, everything else noted.

Used by `makeway.core.config.document.read` alone. Numbers are decimal and plain, booleans `true` and `false`,
texts quoted where they would otherwise be a number, a boolean or null: what YAML 1.1, YAML 1.2 and
kubectl read in different ways is refused rather than guessed at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from makeway.core.config.duration import EXPECTED as DURATION
from makeway.core.config.duration import parse_duration
from makeway.core.config.yaml_tree import Mapping, Node, Scalar, Sequence

S = TypeVar("S", bound=msgspec.Struct)

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WHOLE: Final = re.compile(r"[+-]?(0|[1-9][0-9]{0,18})")
_NUMBER: Final = re.compile(r"[+-]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][+-]?[0-9]+)?|0[xo][0-9a-fA-F]+")

_MAPPING: Final = "a mapping: indented lines of key: value"
_LIST: Final = "a list: [a, b], or lines that begin with -"

_INVALID: Final[Any] = object()
"""What stands for a value that has been noted as wrong."""


@dataclass(frozen=True, slots=True)
class ShapeFinding:
    """One thing that is wrong; with `instead_of`, one of `choices` may have been meant."""

    path: str
    line: int
    value: str
    message: str
    remedy: str
    instead_of: str | None = None
    choices: tuple[str, ...] = ()


@dataclass
class Walk:
    """One walk over one document. `findings` are complete when it has ended; `places` by path.

    What is wrong is left out of the value, so that checks of several values can look at the others.
    """

    findings: list[ShapeFinding] = field(default_factory=list)
    places: dict[str, tuple[int, str]] = field(default_factory=dict)

    def struct(self, node: Node, shape: type[S]) -> S | None:
        """Read the whole document, without what is wrong; None where too little is left."""
        value = self._value(node, inspect.type_info(shape), "")
        return value if isinstance(value, shape) else None

    def _value(self, node: Node, type_: inspect.Type, path: str) -> Any:
        self.places[path] = (node.line, _shown(node))
        type_, extra = unwrapped(type_, {})
        match type_:
            case inspect.StructType():
                return self._struct(node, type_, path)
            case inspect.DictType():
                return self._dict(node, type_, path)
            case inspect.VarTupleType():
                return self._tuple(node, type_.item_type, path)
            case inspect.AnyType():
                return _plain(node)
        if not isinstance(node, Scalar):
            return self._wrong(path, node, f"is {_kind(node)}", f"write {expected(type_, extra)}")
        return self._scalar(node, type_, path, extra)

    # -------------------------------------------------------------------------------- containers

    def _entries(self, node: Node, path: str) -> list[tuple[Scalar, Node]]:
        """The keys of a mapping and their values, each key once."""
        if not isinstance(node, Mapping):
            self._wrong(path, node, f"is {_kind(node)}", f"write {_MAPPING}")
            return []
        first: dict[str, int] = {}
        for key, _ in node.entries:
            if key.text in first:
                message = f"is there twice, first on line {first[key.text]}"
                self.findings.append(
                    ShapeFinding(
                        join_path(path, key.text), key.line, "", message, "keep the one that is meant"
                    )
                )
            first.setdefault(key.text, key.line)
        return list(node.entries)

    def _struct(self, node: Node, type_: inspect.StructType, path: str) -> Any:
        known = {one.encode_name: one for one in type_.fields}
        values = {}
        for key, value in self._entries(node, path):
            inner = join_path(path, key.text)
            one = known.get(key.text)
            if one is None:
                remedy = f"known here: {', '.join(known)}"
                self.findings.append(
                    ShapeFinding(inner, key.line, "", "is no field", remedy, key.text, tuple(known))
                )
            elif not _is_null(value):
                read = self._value(value, one.type, inner)
                if read is _INVALID and one.required and isinstance(value, Scalar) and _is_text(one.type):
                    read = value.text  # a name that is not allowed is a name for those checks
                values[one.name] = read
        if isinstance(node, Mapping):
            for one in type_.fields:
                if one.required and one.name not in values:
                    remedy = f"write {expected(one.type, {})}"
                    self.findings.append(
                        ShapeFinding(join_path(path, one.encode_name), node.line, "", "is missing", remedy)
                    )
        if any(one.required and values.get(one.name, _INVALID) is _INVALID for one in type_.fields):
            return _INVALID
        return type_.cls(**{name: value for name, value in values.items() if value is not _INVALID})

    def _dict(self, node: Node, type_: inspect.DictType, path: str) -> Any:
        values = {}
        for key, value in self._entries(node, path):
            inner = join_path(path, key.text)
            key_type, extra = unwrapped(type_.key_type, {})
            name = self._scalar(Scalar(key.line, key.text, plain=False), key_type, inner, extra)
            read = self._value(value, type_.value_type, inner)
            if name is not _INVALID and read is not _INVALID:
                values[name] = read
        return values

    def _tuple(self, node: Node, item: inspect.Type, path: str) -> Any:
        if not isinstance(node, Sequence):
            return self._wrong(path, node, f"is {_kind(node)}", f"write {_LIST}")
        values = [self._value(one, item, f"{path}[{i}]") for i, one in enumerate(node.items)]
        # What comes behind one that is left out would be looked for in another place.
        return tuple(takewhile(lambda one: one is not _INVALID, values))

    # ----------------------------------------------------------------------------------- scalars

    def _scalar(self, node: Scalar, type_: inspect.Type, path: str, extra: dict[str, Any]) -> Any:
        write = f"write {expected(type_, extra)}"
        if _is_null(node):
            return self._wrong(path, node, "is empty", write)
        reader: Callable[[str], Any] | None = extra.get("read")
        match type_:
            case inspect.TimeDeltaType():
                reader = reader or parse_duration
            case inspect.BoolType():
                if not node.plain or node.text not in _BOOLEANS:
                    return self._wrong(path, node, "is neither true nor false", write)
                return _BOOLEANS[node.text]
            case inspect.LiteralType():
                if node.text in type_.values:
                    return node.text
                choices = tuple(str(value) for value in type_.values)
                return self._wrong(path, node, "is not allowed", write, choices)
            case inspect.IntType():
                return self._int(node, type_, path, write)
            case inspect.StrType() if reader is None:
                return self._text(node, type_, path, write)
        if reader is None:
            raise TypeError(f"{path}: no way to read {type_}")
        try:
            return reader(node.text)
        except ValueError as error:
            return self._wrong(path, node, str(error), write)

    def _int(self, node: Scalar, type_: inspect.IntType, path: str, write: str) -> Any:
        if not node.plain:
            return self._wrong(path, node, "is a text", f"{write}, without quotes")
        if not _WHOLE.fullmatch(node.text):
            return self._wrong(path, node, "is no whole number", write)
        number = int(node.text)
        low, high = -(2**63) if type_.ge is None else type_.ge, 2**63 - 1 if type_.le is None else type_.le
        if not low <= number <= high:
            return self._wrong(path, node, f"is too {'small' if number < low else 'large'}", write)
        return number

    def _text(self, node: Scalar, type_: inspect.StrType, path: str, write: str) -> Any:
        if node.plain and (node.text in _BOOLEANS or _NUMBER.fullmatch(node.text)):
            kind = "true or false" if node.text in _BOOLEANS else "a number"
            return self._wrong(path, node, f"is {kind} where a text is meant", "put it in quotes")
        if not re.search(type_.pattern or "", node.text) or len(node.text) < (type_.min_length or 0):
            return self._wrong(path, node, "is not allowed", write)
        return node.text

    # ---------------------------------------------------------------------------------- findings

    def _wrong(self, path: str, node: Node, message: str, remedy: str, choices: tuple[str, ...] = ()) -> Any:
        shown = _shown(node)
        self.findings.append(
            ShapeFinding(path, node.line, shown, message, remedy, shown if choices else None, choices)
        )
        return _INVALID


def join_path(path: str, key: str) -> str:
    """The path of a mapping's value: `a.b`, or `a["b/c"]` where the key is no plain word."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def unwrapped(
    type_: inspect.Type, extra: dict[str, Any] | None = None
) -> tuple[inspect.Type, dict[str, Any]]:
    """A type without its metadata, and that; "or None" left out."""
    extra = extra or {}
    while isinstance(type_, inspect.Metadata | inspect.UnionType):
        if isinstance(type_, inspect.Metadata):
            extra = {**extra, **(type_.extra or {})}
            type_ = type_.type
        else:
            (type_,) = (one for one in type_.types if not isinstance(one, inspect.NoneType))
    return type_, extra


def expected(type_: inspect.Type, extra: dict[str, Any]) -> str:
    """What to write, in words."""
    type_, extra = unwrapped(type_, extra)
    if "expected" in extra:
        return str(extra["expected"])
    match type_:
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=(only,)):
            return str(only)
        case inspect.LiteralType():
            return f"one of {', '.join(map(str, type_.values))}"
        case inspect.IntType():
            low, high = type_.ge, type_.le
            bounds = [f"at least {low}"] if low is not None else []
            bounds += [f"at most {high}"] if high is not None else []
            return " ".join(["a whole number", " and ".join(bounds)]).strip()
        case inspect.TimeDeltaType():
            return DURATION
        case inspect.StructType() | inspect.DictType():
            return _MAPPING
        case inspect.VarTupleType():
            return _LIST
    return "a text"


def _is_text(type_: inspect.Type) -> bool:
    return isinstance(unwrapped(type_)[0], inspect.StrType)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and node.text in _NULLS


def _kind(node: Node) -> str:
    if isinstance(node, Scalar):
        return "empty" if _is_null(node) else "a single value"
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _shown(node: Node) -> str:
    return node.text if isinstance(node, Scalar) else ""


def _plain(node: Node) -> Any:
    """A value that is not looked into, as texts, lists and mappings."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return [_plain(item) for item in node.items]
    return {key.text: _plain(value) for key, value in node.entries}
