"""Run pytest, and what failed once more, alone: `python tests/once_more.py ARGUMENTS`, those of pytest.

A test that passes then is flaky: the run passes, and its output ends with what the test said when it failed
and when it passed. More than `MOST` failures are no flakiness, and nothing is run again.
"""

import sys
from collections.abc import Sequence
from typing import Final

import pytest

MOST: Final = 5
"""How many tests are run once more at most."""


class Said:
    """A plugin of pytest that keeps which tests failed, which passed, and what both said."""

    def __init__(self) -> None:
        self.failed: set[str] = set()
        self.passed: set[str] = set()
        self.texts: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report of setup, call or teardown; the one of teardown has what all three printed."""
        name = node_id(report.nodeid)
        if report.failed:
            self.failed.add(name)
            self.texts[name] = f"{self.texts.get(name, '')}{_text(report)}"
        elif report.when == "call" and report.passed:
            self.passed.add(name)
        elif report.when == "teardown" and name not in self.failed:
            self.texts[name] = _text(report)


def _text(report: pytest.TestReport) -> str:
    parts = [report.longreprtext, *(f"--- {title} ---\n{text}" for title, text in report.sections)]
    return "".join(f"{part.rstrip()}\n" for part in parts if part)


def node_id(reported: str) -> str:
    """Return a test's node ID without the group that xdist's loadgroup appends, `ID@GROUP`. Pure."""
    end = reported.rfind("@")
    return reported[:end] if end > reported.rfind("]") else reported


def summary(first: Said, second: Said) -> str:
    """Return what is printed of the tests that were run twice. Pure."""
    lines = []
    for name in sorted(first.failed):
        flaky = name in second.passed - second.failed
        lines += [
            f"==== {'FLAKY' if flaky else 'BROKEN'}: {name}",
            f"==== what it said when it failed:\n{first.texts[name]}",
            f"==== what it said once more, alone, when it {'passed' if flaky else 'did not pass'}:",
            second.texts.get(name, ""),
        ]
    return "\n".join(lines)


def run(arguments: Sequence[str]) -> int:
    """Run pytest, and what failed once more; return 0 where each test has passed, else what to exit with."""
    first, second = Said(), Said()
    code = int(pytest.main([*arguments], plugins=[first]))
    if code != pytest.ExitCode.TESTS_FAILED or not first.failed:
        return code
    if len(first.failed) > MOST:
        print(f"{len(first.failed)} tests failed: more than {MOST} are not run once more")
        return code
    again = int(pytest.main(["-v", "-n", "0", *sorted(first.failed)], plugins=[second]))
    print(summary(first, second))
    return again or int(not first.failed <= second.passed)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
