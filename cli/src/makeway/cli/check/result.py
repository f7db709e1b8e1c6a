"""One result of `makeway check`: a tick, or what is wrong and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec
from rich.text import Text

State = Literal["ok", "warning", "wrong", "unknown"]

_SIGNS: Final = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "wrong": ("✗", "red"),
    "unknown": ("?", "cyan"),
}


class CheckResult(msgspec.Struct, frozen=True):
    """What one check found.

    `name`: what was looked at, the same in every version. `state`: wrong makes the command's exit code 1;
    unknown could not be looked at, and `detail` says why. `remedy`: what to do, empty where it is ok.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""


class CheckReport(msgspec.Struct, frozen=True):
    """All results. `healthy`: none is wrong."""

    healthy: bool
    results: tuple[CheckResult, ...]


def report_of(results: Iterable[CheckResult]) -> CheckReport:
    """Put results together, in their order."""
    found = tuple(results)
    return CheckReport(all(result.state != "wrong" for result in found), found)


def lines(result: CheckResult) -> Iterator[Text]:
    """Return a result for a person, its remedy below it."""
    sign, colour = _SIGNS[result.state]
    yield Text.assemble((sign, colour), f" {result.name}: {result.detail}")
    if result.remedy:
        yield Text(f"    {result.remedy}")


def summary(report: CheckReport) -> str:
    """Say how many results of which kind there are."""
    count = {state: sum(1 for one in report.results if one.state == state) for state in _SIGNS}
    parts = [f"{count['ok']} in order"]
    parts += [f"{count['wrong']} wrong"] if count["wrong"] else []
    parts += [f"{count['warning']} to look at"] if count["warning"] else []
    parts += [f"{count['unknown']} not known"] if count["unknown"] else []
    return ", ".join(parts)
