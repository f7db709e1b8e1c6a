"""Where makeway answers otherwise than the tests expect, on purpose; and outcomes held against that."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec

from upstream_suites.cases import Case, Outcome

FILE: Final = Path(__file__).parent / "differences.yaml"


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test that is not run."""

    suite: str
    test: str
    reason: str


class Separate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test whose cases cannot share an API server. `cases`: patterns for `-test.run`, one a run."""

    suite: str
    test: str
    cases: tuple[str, ...]
    reason: str


class Difference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cases that fail with makeway. `cases`: a name, or a pattern with `*` for what varies."""

    suite: str
    cases: str
    reason: str


class Differences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of the file."""

    left_out: tuple[LeftOut, ...] = ()
    separate: tuple[Separate, ...] = ()
    differences: tuple[Difference, ...] = ()

    def left_out_of(self, suite: str) -> dict[str, str]:
        """Return the tests of a suite that are not run, and why."""
        return {one.test: one.reason for one in self.left_out if one.suite == suite}

    def names(self, suite: str, case: str) -> bool:
        """Report whether a case is listed as one that fails."""
        return any(one.suite == suite and fnmatchcase(case, one.cases) for one in self.differences)

    def separate_of(self, suite: str, test: str) -> tuple[str, ...]:
        """Return the patterns of the runs that a test is made of; none: it is one run."""
        found = [one.cases for one in self.separate if (one.suite, one.test) == (suite, test)]
        return found[0] if found else ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, by case; and how many cases passed, and differ as listed."""

    wrong: tuple[str, ...]
    passed: int
    different: int

    @property
    def cases(self) -> int:
        """How many cases there were."""
        return len(self.wrong) + self.passed + self.different


def read(path: Path = FILE) -> Differences:
    """Read the file.

    Raises:
        msgspec.ValidationError: it is not what it should be.
    """
    return msgspec.yaml.decode(path.read_bytes(), type=Differences)


def judge(suite: str, found: Sequence[Case], listed: Differences, *, whole: bool) -> Verdict:
    """Hold the outcomes of a suite against the list. `whole`: all of the suite was run.

    A listed case that passes is as wrong as another that fails, and so is one that the suite does not have.
    """
    wrong: list[str] = []
    passed = different = 0
    for case in found:
        expected = listed.names(suite, case.name)
        if case.outcome is Outcome.FAIL and expected:
            different += 1
        elif case.outcome is Outcome.PASS and not expected:
            passed += 1
        elif case.outcome is Outcome.PASS:
            wrong.append(f"{case.name} passes, and is listed as a difference")
        else:
            wrong.append(f"{case.name}: {case.outcome}")
    if whole:
        wrong += [
            f"{one.cases} is listed as a difference, and there is no such case"
            for one in listed.differences
            if one.suite == suite and not any(fnmatchcase(case.name, one.cases) for case in found)
        ]
    return Verdict(tuple(wrong), passed, different)


def table(listed: Differences) -> str:
    """Return the lists as tables of Markdown, for the page that tells of them."""
    lines = ["| Suite | Case | How makeway answers, and why |", "|---|---|---|"]
    lines += [f"| {one.suite} | `{one.cases}` | {_line(one.reason)} |" for one in listed.differences]
    lines += ["", "| Suite | Not run | Why |", "|---|---|---|"]
    lines += [f"| {one.suite} | `{one.test}` | {_line(one.reason)} |" for one in listed.left_out]
    lines += ["", "| Suite | Each case by itself | Why |", "|---|---|---|"]
    lines += [f"| {one.suite} | `{one.test}` | {_line(one.reason)} |" for one in listed.separate]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    print(table(read()), end="")
