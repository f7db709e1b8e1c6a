"""One result of `makeway check`: a tick, or what is wrong and what to do; which part it is about. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec
from rich.text import Text

from makeway.core.text import first_few

State = Literal["ok", "warning", "wrong", "unknown"]

_NAMED: Final = 3
"""How many results of a kind the first line names."""

_TELLING: Final = ("NATS", "pods", "configuration")
"""Of these, what is not known leaves it open how the parts do. Few may see Secrets, and need to."""

MAKEWAY: Final = "makeway"
"""The group of what concerns all parts, and of what has no other."""

_BEGINNINGS: Final[Mapping[str, tuple[str, ...]]] = {
    MAKEWAY: (),
    "Kubernetes": ("Kubernetes", "admission policies", "pod groups", "clocks"),
    "configuration": ("priority classes", "policy", "queues", "brake", "configuration"),
    "NATS": ("NATS", "stream", "quarantine", "evictors' consumer"),
    "planner": ("rights of planner", "preemption loops", "planner"),
    "evictor": ("rights of evictor", "evictor", "caps of ", "breaker"),
    "scheduler": ("rights of scheduler", "scheduler", "kube-scheduler"),
    "nominator": ("rights of nominator", "nominator"),
    "shadow": ("shadow",),
}
"""The groups as they are shown, and how the names of their results begin; the first that fits counts."""

_SIGNS: Final[Mapping[State, tuple[str, str]]] = {
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

    @property
    def blind(self) -> bool:
        """Whether the user may not see what says how the parts do."""
        return any(one.state == "unknown" and one.name in _TELLING for one in self.results)


def report_of(results: Iterable[CheckResult]) -> CheckReport:
    """Put results together, in their order."""
    found = tuple(results)
    return CheckReport(all(result.state != "wrong" for result in found), found)


def lines(result: CheckResult) -> Iterator[Text]:
    """Return a result for a person, its remedy below it; indented, since its group stands above it."""
    sign, colour = _SIGNS[result.state]
    yield Text.assemble("  ", (sign, colour), f" {result.name}: {result.detail}")
    if result.remedy:
        yield Text(f"      {result.remedy}")


def verdict(report: CheckReport) -> Text:
    """Return the first line: whether all is well, and otherwise what is wrong, by name."""
    found: dict[State, list[str]] = {state: [] for state in _SIGNS}
    for one in report.results:
        found[one.state].append(one.name)
    good = f"{len(found['ok'])} in order"
    named = [
        f"{len(names)} {told}: {first_few(names, _NAMED)}"
        for names, told in (
            (found["wrong"], "wrong"),
            (found["warning"], "to look at"),
            (found["unknown"], "not known"),
        )
        if names
    ]
    if not named:
        return Text.assemble(("all well", "green"), f": {good}")
    head = "; ".join((*named, good))
    if found["wrong"]:
        return Text(head, style="red")
    if report.blind:
        return Text.assemble(("not known whether all is well", "yellow"), f"; {head}")
    return Text.assemble(("nothing is wrong", "green"), f"; {head}")


def group_of(name: str) -> str:
    """Return the group of a result, by its name."""
    return next((group for group, beginnings in _BEGINNINGS.items() if name.startswith(beginnings)), MAKEWAY)


def grouped(results: Iterable[CheckResult]) -> list[tuple[str, list[CheckResult]]]:
    """Return results by what they are about, each group in their order; groups without any are left out."""
    found: dict[str, list[CheckResult]] = {group: [] for group in _BEGINNINGS}
    for result in results:
        found[group_of(result.name)].append(result)
    return [(group, of_it) for group, of_it in found.items() if of_it]
