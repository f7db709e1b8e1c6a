"""YAML text to a tree of nodes that know where they stand, read strictly and within bounds.

What a scalar means is left to the caller that knows what should be there: YAML 1.1 takes `off` for a boolean,
which is a mode here. Refused, with the line: aliases and anchors (a few lines could stand for gigabytes),
tags, keys that are no scalars, what nests too deep, what is too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

MAX_CHARACTERS: Final = 1 << 20
"""A ConfigMap holds no more."""

MAX_DEPTH: Final = 50

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number, boolean or null as it is written.

    `plain`: without quotes. `block`: its text begins on the line after `line` (`key: |`).
    """

    line: int
    text: str
    plain: bool
    block: bool = False


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping, in the order of the text; a key may be there twice."""

    line: int
    entries: tuple[tuple[Scalar, Node], ...]


Node = Scalar | Sequence | Mapping


class YamlError(ValueError):
    """The text is not YAML that is accepted here. `line` counts from 1; 0 where it is not known."""

    def __init__(self, line: int, message: str, remedy: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.remedy = remedy


def documents(text: str) -> list[Node]:
    """Read every document of a text, those with nothing in them left out. O(characters).

    Raises YamlError.
    """
    if len(text) > MAX_CHARACTERS:
        raise YamlError(0, f"has {len(text)} characters", f"keep it below {MAX_CHARACTERS}")
    try:
        events = yaml.parse(text, Loader=_LOADER)
        return [node for node in _documents(events) if not _is_empty(node)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        raise YamlError(line, f"is no YAML: {error.problem or error.context}", _LOOK) from error
    except yaml.YAMLError as error:
        raise YamlError(0, f"is no YAML: {str(error).splitlines()[0]}", _LOOK) from error


def split_documents(text: str) -> list[tuple[int, str]]:
    """Cut a text where `---` begins another document: how many lines stand before each, and its text.

    Each can be read by itself. What is not YAML is cut too, and is for `documents` to refuse.
    """
    found: list[tuple[int, list[str]]] = [(0, [])]
    for number, line in enumerate(text.splitlines(keepends=True)):
        if line.startswith("---") and not line[3:].rstrip("\r\n")[:1].strip():
            found.append((number, []))
            line = "   " + line[3:]  # noqa: PLW2901 - what stands behind the mark belongs to the document
        found[-1][1].append(line)
    first, *others = found
    return [(first[0], "".join(first[1])), *((before, "".join(_readable(lines))) for before, lines in others)]


def _readable(lines: list[str]) -> list[str]:
    """Return the lines after `---`, without `...` where it ends an empty one: alone it is no YAML."""
    if all(line.startswith("...") or line.lstrip()[:1] in ("", "#") for line in lines):
        return [line if not line.startswith("...") else line[3:] for line in lines]
    return lines


_LOOK: Final = "look at indentation, quotes and brackets there and on the line before"


def _is_empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.plain and not node.text


def _documents(events: Iterator[Any]) -> Iterator[Node]:
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            yield _node(next(events), events, 0)


def _node(event: Any, events: Iterator[Any], depth: int) -> Node:
    line = event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent) or event.anchor:
        raise YamlError(line, "has an anchor or an alias", "write the value out where it is used")
    if event.tag is not None:
        raise YamlError(line, f"has the tag {event.tag}", "leave the tag out")
    if depth > MAX_DEPTH:
        raise YamlError(line, f"nests more than {MAX_DEPTH} deep", "nothing here nests so deep")
    if isinstance(event, yaml.ScalarEvent):
        return Scalar(line, event.value, not event.style, event.style == "|")
    if isinstance(event, yaml.SequenceStartEvent):
        return Sequence(line, tuple(_until(yaml.SequenceEndEvent, events, depth)))
    nodes = _until(yaml.MappingEndEvent, events, depth)
    entries = []
    for key in nodes:
        if not isinstance(key, Scalar):
            raise YamlError(key.line, "has a key that is a list or a mapping", "use a text as the key")
        entries.append((key, next(nodes)))
    return Mapping(line, tuple(entries))


def _until(end: type, events: Iterator[Any], depth: int) -> Iterator[Node]:
    for event in events:
        if isinstance(event, end):
            return
        yield _node(event, events, depth + 1)
