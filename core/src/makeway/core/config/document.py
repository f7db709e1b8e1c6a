"""Configuration files: YAML held strictly to a struct.

`read` is called by `makeway.core.policy.document` and `makeway.core.queues`; the struct is the only place
that says what a file may hold, so that reader, editor schema and reference page cannot differ.

A scalar is read as the text that is written, and its field's type says what that means: YAML 1.1 takes `off`
for a boolean, which is a mode here. Refused, with the line: aliases and anchors (a few lines could stand for
gigabytes), tags, keys that are no scalars or there twice, what nests too deep, what is too long.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
import yaml
from msgspec import inspect

from makeway.core.config.duration import EXPECTED, DurationError, parse_duration
from makeway.core.text import counted, one_line

S = TypeVar("S", bound=msgspec.Struct)

MAX_CHARACTERS: Final = 1 << 20
"""A ConfigMap holds no more."""

MAX_DEPTH: Final = 50

MOST_PROBLEMS: Final = 20
"""So many of one text are named; how many more there are is said behind them."""

_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_LONGEST_VALUE: Final = 80
_LOOK: Final = "look at indentation, quotes and brackets there and on the line before"
_TAB: Final = re.compile(r" *\t")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `path` as in `limits.victimsPerOrder`, `value` as it is written.

    `message` goes on from the value ("is not allowed"), `remedy` is what to do, in the imperative.
    `line` counts from 1; 0 where it is not known. `times`: as how many problems it counts.
    """

    path: str
    value: str
    message: str
    remedy: str
    line: int = 0
    times: int = 1

    def describe(self, source: str) -> str:
        """One line: where, what, what to do."""
        where = f"{source}:{self.line}" if self.line else source
        value = repr(one_line(self.value, _LONGEST_VALUE)) if self.value else ""
        what = " ".join(part for part in (value, self.message) if part)
        path = f"{one_line(self.path, _LONGEST_VALUE)}: " if self.path else ""
        return f"{where}: {path}{what}; {self.remedy}"


class ConfigError(ValueError):
    """A configuration that is refused. `problems`: in the order of the lines, the first few of many.

    `more`: problems that were found besides.
    """

    def __init__(self, source: str, problems: Iterable[Problem], more: int = 0) -> None:
        self.source = source
        found = sorted(problems, key=lambda problem: problem.line)
        if more := more + max(len(found) - MOST_PROBLEMS, 0):
            others = Problem("", "", f"has {counted(more, 'more problem')}", "mend these first", times=more)
            found[MOST_PROBLEMS:] = [others]
        self.problems = tuple(found)
        super().__init__("\n".join(problem.describe(source) for problem in self.problems))


def and_others(problems: Sequence[Problem]) -> str:
    """Return how many problems there are besides the first; empty where there is one."""
    others = sum(one.times for one in problems[1:])
    return f" (and {others} more)" if others else ""


class YamlError(ValueError):
    """The text is not YAML that is accepted here."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(frozen=True)
class Document(Generic[S]):
    """What was read. `places`: line and text of each value, by path, for checks that look at several."""

    source: str
    value: S
    places: Mapping[str, tuple[int, str]]

    def check(self, found: Iterable[Problem]) -> None:
        """Raise ConfigError with all problems that checks of several values have found, if any."""
        if problems := tuple(found):
            raise ConfigError(self.source, problems)

    def problem(self, path: str, message: str, remedy: str) -> Problem:
        """A problem with the value at a path, or with its absence there."""
        line, text = self.places.get(path, (0, ""))
        return Problem(path, text, message, remedy, line)


def read(text: str, source: str, shape: type[S]) -> Document[S]:
    """Read one YAML document as `shape`, a frozen struct; O(characters).

    Field types may be all that msgspec reads from texts, and `timedelta` as `parse_duration` reads it. A
    field without a default is required; null is the same as absent.

    Raises ConfigError: it is not YAML, or not of that shape, with all that is wrong of it.
    """
    places: dict[str, tuple[int, str]] = {}
    holders: dict[str, tuple[dict[str, Any], str]] = {}
    try:
        found = nodes_of(text)
        if not found:
            remedy = "to be without, write its apiVersion and kind; of queues `partitions: [{queues: []}]`"
            raise YamlError(Problem("", "", "the file is empty", remedy))
        if len(found) > 1:
            line = line_of(found[1])
            raise YamlError(Problem("", "", "there is a second document", "keep one in a file", line))
        plain = _plain(found[0], "", places, holders)
    except YamlError as error:
        raise ConfigError(source, [error.problem]) from error
    reading = _Typing(places)
    typed = reading.typed(plain, inspect.type_info(shape), "")
    problems = reading.problems
    taken = {_take_out(problem.path, holders) for problem in problems}
    while len(problems) < MOST_PROBLEMS:
        try:
            value = msgspec.convert(typed, shape, strict=False)
        except msgspec.ValidationError as error:
            problem = _problem(str(error), places, reading.types)
        else:
            if problems:
                break
            return Document(source, value, places)
        if problem.path not in taken:  # else it is missing for that
            problems.append(problem)
        if not (out := _take_out(problem.path, holders)):
            break
        taken.add(out)
    raise ConfigError(source, problems, reading.more)


def _take_out(path: str, holders: dict[str, tuple[dict[str, Any], str]]) -> str:
    """Take what is wrong out of the mapping around it, so that the rest can be read; return its path.

    Of a list all is taken out, and of what lacks a field the whole; empty where nothing else is left.
    """
    while path and path not in holders:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    if path:
        holder, key = holders.pop(path)
        holder.pop(key, None)
    return path


def nodes_of(text: str) -> list[yaml.Node]:
    """Return the documents of a text, those with nothing in them left out. O(characters).

    Raises YamlError.
    """
    if len(text) > MAX_CHARACTERS:
        raise YamlError(Problem("", "", f"has {len(text)} characters", f"keep it below {MAX_CHARACTERS}"))
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if (problem := _refused(event, depth)) is not None:
                raise YamlError(problem)
        return [
            one
            for one in yaml.compose_all(text, Loader=_LOADER)
            if not isinstance(one, yaml.ScalarNode) or one.style or one.value
        ]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        if _TAB.match("".join(text.splitlines()[line - 1 : line])):
            raise YamlError(Problem("", "", "is indented with a tab", "use spaces", line)) from error
        what = f"is no YAML: {error.problem or error.context}"
        raise YamlError(Problem("", "", what, _LOOK, line)) from error
    except yaml.YAMLError as error:
        what = f"is no YAML: {str(error).splitlines()[0]}"
        raise YamlError(Problem("", "", what, _LOOK)) from error


def _refused(event: Any, depth: int) -> Problem | None:
    line = event.start_mark.line + 1 if event.start_mark else 0
    if getattr(event, "anchor", None):
        remedy = "write the value out where it is used"
        return Problem("", "", "has an anchor or an alias", remedy, line)
    if getattr(event, "tag", None) is not None:
        return Problem("", "", f"has the tag {event.tag}", "leave the tag out", line)
    if depth > MAX_DEPTH:
        return Problem("", "", f"nests more than {MAX_DEPTH} deep", "nothing here nests so deep", line)
    return None


def line_of(node: yaml.Node) -> int:
    """Return the line of a value; of a text that begins on the line after its key, that of the key."""
    return int(node.start_mark.line) + 1


def join_path(path: str, key: str) -> str:
    """The path of a mapping's value."""
    return f"{path}.{key}" if path else key


def did_you_mean(written: str, known: Sequence[str]) -> str:
    """The known name that is nearest to what is written, or nothing where none is near."""
    if len(written) > _LONGEST_VALUE:
        return ""
    by_key = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(written.casefold(), by_key, n=1, cutoff=0.6)
    return by_key[near[0]] if near else ""


def _plain(
    node: yaml.Node,
    path: str,
    places: dict[str, tuple[int, str]],
    holders: dict[str, tuple[dict[str, Any], str]],
) -> Any:
    """Return a value as texts, nulls, lists and mappings; note where each is, and the mapping around it."""
    places[path] = line_of(node), node.value if isinstance(node, yaml.ScalarNode) else ""
    if isinstance(node, yaml.ScalarNode):
        return None if not node.style and node.value in _NULLS else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one, f"{path}[{number}]", places, holders) for number, one in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            message = "has a key that is a list or a mapping"
            raise YamlError(Problem(path, "", message, "use a text as the key", line_of(key)))
        inner = join_path(path, key.value)
        if key.value in found:
            message = f"is there twice, first on line {places[inner][0]}"
            raise YamlError(Problem(inner, "", message, "keep the one that is meant", line_of(key)))
        holders[inner] = found, key.value
        found[key.value] = _plain(value, inner, places, holders)
    return found


class _Typing:
    """One walk over what was read, which it changes: of what type each value is to be, by path.

    It reads durations, of which msgspec knows those of ISO 8601 alone, and finds all fields that are none:
    msgspec names one at a time. `more`: problems beyond the first few.
    """

    def __init__(self, places: Mapping[str, tuple[int, str]]) -> None:
        self._places = places
        self.types: dict[str, inspect.Type] = {}
        self.problems: list[Problem] = []
        self.more = 0

    def typed(self, value: Any, type_: inspect.Type, path: str) -> Any:
        """Return a value with its durations read; fields that are none, and nulls, are taken out of it."""
        self.types[path] = type_
        match unwrapped(type_)[0]:
            case inspect.TimeDeltaType() if isinstance(value, str):
                try:
                    return parse_duration(value)
                except DurationError as error:
                    self._found(path, value, str(error), f"write {EXPECTED}")
            case inspect.StructType(fields=fields) if isinstance(value, dict):
                known = {one.encode_name: one.type for one in fields}
                for name, one in tuple(value.items()):
                    inner = join_path(path, name)
                    if name not in known:
                        self._found(inner, "", "is no field", self._known(name, known))
                        del value[name]
                    elif one is None:
                        del value[name]
                    else:
                        value[name] = self.typed(one, known[name], inner)
            case inspect.VarTupleType(item_type=item) if isinstance(value, list):
                for number, one in enumerate(value):
                    value[number] = self.typed(one, item, f"{path}[{number}]")
        return value

    def _known(self, written: str, known: Mapping[str, Any]) -> str:
        if len(self.problems) >= MOST_PROBLEMS:
            return ""  # it is only counted
        meant = did_you_mean(written, tuple(known))
        return f"did you mean {meant}?" if meant else f"known here: {', '.join(known)}"

    def _found(self, path: str, value: str, message: str, remedy: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(path, value, message, remedy, self._places[path][0]))
        else:
            self.more += 1


def unwrapped(type_: inspect.Type) -> tuple[inspect.Type, dict[str, Any]]:
    """A type without its metadata, and that; "or None" left out."""
    extra: dict[str, Any] = {}
    while isinstance(type_, inspect.Metadata | inspect.UnionType):
        if isinstance(type_, inspect.Metadata):
            extra |= type_.extra or {}
            type_ = type_.type
        else:
            (type_,) = (one for one in type_.types if not isinstance(one, inspect.NoneType))
    return type_, extra


def expected(type_: inspect.Type) -> str:
    """What to write, in words; empty where msgspec's own words say it better."""
    bare, extra = unwrapped(type_)
    match bare:
        case _ if "expected" in extra:
            return str(extra["expected"])
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return f"{'one of ' if len(values) > 1 else ''}{', '.join(map(str, values))}"
        case inspect.IntType(ge=low, le=high):
            bounds = [f"at least {low}"] if low is not None else []
            bounds += [f"at most {high}"] if high is not None else []
            return " ".join(["a whole number", " and ".join(bounds)]).strip()
        case inspect.StrType():
            return "a text"
        case inspect.VarTupleType():
            return "a list"
        case inspect.StructType() | inspect.DictType():
            return "fields and their values"
    return ""


def _wrong_entry(
    path: str, places: Mapping[str, tuple[int, str]], types: Mapping[str, inspect.Type]
) -> Problem | None:
    """Return the first key or value of a mapping that is not allowed: msgspec does not say which it is.

    None where `path` is no mapping's, or nothing in it is wrong by itself.
    """
    above = path.removesuffix("[...]")
    if not isinstance(mapping := unwrapped(types.get(above, inspect.AnyType()))[0], inspect.DictType):
        return None
    for inner, (line, text) in places.items():
        if inner.startswith(f"{above}."):
            key = inner.removeprefix(f"{above}.")
            for type_, written in ((mapping.key_type, key), (mapping.value_type, text)):
                if not _is_of(type_, written):
                    return Problem(inner, written, "is not allowed", f"write {expected(type_)}", line)
    return None


def _is_of(type_: inspect.Type, text: str) -> bool:
    """Report whether a text is of a type that lists its values, or of texts that have a pattern."""
    match unwrapped(type_)[0]:
        case inspect.LiteralType(values=values):
            return text in values
        case inspect.StrType(pattern=str(pattern)):
            return re.search(pattern, text) is not None
    return True


_LENGTH: Final = re.compile(r"Expected `\w+` of length (>=|<=) (\d+)")
_OF_ANOTHER_TYPE: Final = "`, got `"
"""In what msgspec says of a value of another type; of one beyond a bound it says more than `expected`."""


def _problem(said: str, places: Mapping[str, tuple[int, str]], types: Mapping[str, inspect.Type]) -> Problem:
    """Return what msgspec says of a value that is not of its field's type."""
    what, at, where = said.rpartition(" - at `")
    what, path = (what, where.rpartition("$")[2].rstrip("`").lstrip(".")) if at else (where, "")
    line, value = places.get(path.removesuffix("[...]"), (0, ""))
    type_ = types.get(path, inspect.AnyType())
    if (missing := _MISSING.match(what)) is not None:
        return Problem(join_path(path, missing[1]), "", "is missing", "write it", line)
    if (entry := _wrong_entry(path, places, types)) is not None:
        return entry
    if (length := _LENGTH.match(what)) is not None:
        bound = "at least" if length[1] == ">=" else "at most"
        return Problem(
            path, value, "is not allowed", f"write {bound} {counted(int(length[2]), 'value')}", line
        )
    words = expected(type_) if value or _OF_ANOTHER_TYPE in what else ""
    return Problem(
        path, value, "is not allowed", f"write {words}" if words else one_line(what, _LONGEST_VALUE), line
    )
