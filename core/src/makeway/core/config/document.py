"""Configuration files: YAML held strictly to a struct, with every problem told at once.

`read` is called by `makeway.core.policy.document` and `makeway.core.queues`; the struct is the only place
that says what a file may hold, so that reader, editor schema and reference page cannot differ.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from makeway.core.config.shapes import ShapeFinding, Walk
from makeway.core.config.yaml_tree import YamlError, documents

S = TypeVar("S", bound=msgspec.Struct)

_LONGEST_VALUE: Final = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `path` as in `limits.victimsPerOrder`, `value` as it is written.

    `message` goes on from the value ("is no whole number"), `remedy` is what to do, in the imperative.
    `line` counts from 1; 0 where it is not known.
    """

    path: str
    value: str
    message: str
    remedy: str
    line: int = 0

    def describe(self, source: str) -> str:
        """One line: where, what, what to do."""
        where = f"{source}:{self.line}" if self.line else source
        what = " ".join(part for part in (_shortened(self.value), self.message) if part)
        path = f"{_cut(self.path)}: " if self.path else ""
        return f"{where}: {path}{what}; {self.remedy}"


class ConfigError(ValueError):
    """A configuration that is refused. `problems`: all of them, in the order of the lines."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        super().__init__("\n".join(problem.describe(source) for problem in self.problems))


@dataclass(frozen=True)
class Document(Generic[S]):
    """What was read, and where each value stands, for checks that look at several values.

    `places`: path to line and text, for every path that is in the file. `problems`: what is wrong with single
    values; `value` is without those, and accepted only where there are none.
    """

    source: str
    value: S
    places: Mapping[str, tuple[int, str]]
    problems: tuple[Problem, ...] = ()

    def is_sound(self, path: str) -> bool:
        """Report whether nothing is wrong at a path, or below it."""
        return not any(
            one.path == path or one.path.startswith((f"{path}.", f"{path}[")) for one in self.problems
        )

    def check(self, found: Iterable[Problem]) -> None:
        """Raise ConfigError with all problems, where there are any. `found`: by checks of several values."""
        if problems := (*self.problems, *found):
            raise ConfigError(self.source, problems)

    def problem(self, path: str, message: str, remedy: str) -> Problem:
        """A problem with the value at a path, or with its absence there."""
        line, text = self.places.get(path, (0, ""))
        return Problem(path, text, message, remedy, line)


def read(text: str, source: str, shape: type[S]) -> Document[S]:
    """Read one YAML document as `shape`, a frozen struct; O(characters).

    Field types may be `bool`, `int`, `str`, `Literal`, `timedelta`, `Any`, structs, `dict[str, …]`,
    `tuple[…, ...]` and each of them or None, with `msgspec.Meta` for bounds and patterns. A `Meta` may
    carry `extra={"expected": "a namespace's name"}` for the message, and `"read": callable`, which
    makes the value of the text or raises ValueError with what is wrong ("is no quantity").
    A field without a default is required; null is the same as absent.

    Problems with single values are in the document, so that the caller can tell them with its own.

    Raises:
        ConfigError: it is not YAML, or so little of that shape that nothing more can be said.
    """
    try:
        found = documents(text)
    except YamlError as error:
        raise ConfigError(source, [Problem("", "", error.message, error.remedy, error.line)]) from error
    if not found:
        raise ConfigError(source, [Problem("", "", "the file is empty", _REMEDY_EMPTY)])
    if len(found) > 1:
        raise ConfigError(
            source, [Problem("", "", "there is a second document", "keep one in a file", found[1].line)]
        )
    walk = Walk()
    value = walk.struct(found[0], shape)
    problems = tuple(_problem(finding) for finding in walk.findings)
    if value is None:
        raise ConfigError(source, problems)
    return Document(source, value, walk.places, problems)


_REMEDY_EMPTY: Final = "write its apiVersion and kind at least, or delete what holds it to be without"


def _problem(finding: ShapeFinding) -> Problem:
    remedy = finding.remedy
    if finding.instead_of is not None and (meant := did_you_mean(finding.instead_of, finding.choices)):
        remedy = f"did you mean {meant}? {remedy[0].upper()}{remedy[1:]}"
    return Problem(finding.path, finding.value, finding.message, remedy, finding.line)


def did_you_mean(written: str, known: Sequence[str]) -> str:
    """The known name that is nearest to what is written, or nothing where none is near."""
    if len(written) > _LONGEST_VALUE:
        return ""
    by_key = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(written.casefold(), by_key, n=1, cutoff=0.6)
    return by_key[near[0]] if near else ""


def _shortened(value: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in value[: _LONGEST_VALUE + 1])
    return repr(_cut(printable)) if value else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
