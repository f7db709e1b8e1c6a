"""The index of log events, read from the source: who says what, with which keys. For `make reference`.

An event is a constant in snake case, the first argument of a logger's method; keys are what it is given by
name. What `failed` names in a call is logged, with the error, where a request could not be answered.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from makeway.dev.paths import CHECKOUT

PYTHON = ("runtime", "bus", "planner", "evictor", "nominator")
GO = "plugin"

_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
_LOGGERS = {"_log", "log", "logger"}
_EVENT = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+")
_FAILED = "failed"
_GO_CALL = re.compile(r'\.(Info|Error)\((?:err, |nil, |[a-z]+(?:\.[A-Za-z]+)*, )?"([a-z0-9_]+)"(.*)')
_GO_KEY = re.compile(r', "([a-z_A-Z]+)", ')


@dataclass(frozen=True, order=True)
class LogEvent:
    """One place that logs an event. `part`: runtime, bus, planner, evictor, nominator or scheduler."""

    event: str
    part: str
    level: str
    keys: tuple[str, ...]


def said() -> list[LogEvent]:
    """Every place in the services' source that logs an event."""
    found = list(_go(CHECKOUT / GO))
    for part in PYTHON:
        for path in sorted((CHECKOUT / part / "src").rglob("*.py")):
            found += _python(path, part)
    return sorted(found)


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Return event, level, who says it, and all keys it may have, for a table; by name."""
    by_event: dict[str, list[LogEvent]] = defaultdict(list)
    for one in said():
        by_event[one.event].append(one)
    for event, places in sorted(by_event.items()):
        yield (
            f"`{event}`",
            _joined(place.level for place in places),
            _joined(place.part for place in places),
            ", ".join(f"`{key}`" for key in dict.fromkeys(key for place in places for key in place.keys)),
        )


def _joined(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _python(path: Path, part: str) -> Iterator[LogEvent]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        for one in node.keywords:
            if one.arg == _FAILED and isinstance(one.value, ast.Constant):
                yield LogEvent(str(one.value.value), part, "error", ("error",))
        if not isinstance(node.func, ast.Attribute):
            continue
        owner, method = node.func.value, node.func.attr
        name = (
            owner.id
            if isinstance(owner, ast.Name)
            else owner.attr
            if isinstance(owner, ast.Attribute)
            else ""
        )
        if name not in _LOGGERS or method not in {*_LEVELS, "log"}:
            continue
        position = 1 if method == "log" else 0
        argument = node.args[position] if len(node.args) > position else None
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            level = "by kind" if method == "log" else method
            keys = tuple(one.arg for one in node.keywords if one.arg and one.arg != "exc_info")
            if _EVENT.fullmatch(argument.value):
                yield LogEvent(argument.value, part, level, keys)
        elif not (isinstance(argument, ast.Name) and argument.id == _FAILED):
            raise ValueError(f"{path}:{node.lineno}: name the event by a constant")


def _go(directory: Path) -> Iterator[LogEvent]:
    for path in sorted(directory.rglob("*.go")):
        if path.name.endswith("_test.go"):
            continue
        # A call that runs over several lines is one.
        for line in re.sub(r",\n\s*", ", ", path.read_text()).splitlines():
            if (call := _GO_CALL.search(line)) and _EVENT.fullmatch(call[2]):
                keys = tuple(dict.fromkeys(_GO_KEY.findall(call[3])))
                level = "error" if call[1] == "Error" else "info"
                yield LogEvent(call[2], "scheduler", level, (*(["err"] if level == "error" else []), *keys))
