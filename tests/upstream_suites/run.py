"""kube-scheduler's own integration tests with MakeWay in DefaultPreemption's place: `make upstream-suites`.

    make upstream-suites SUITES=podgroup CASES=TestPodGroupPreemption/Full_PodGroup_Preemption

Each test is a process of its own with API servers, scheduler and etcd, as upstream has it; each API server
gets a nats-server, a planner and an evictor. The outcomes are held against differences.yaml.
"""

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Final

from makeway.dev.binaries import ETCD, KUBERNETES, NATS_SERVER
from makeway.dev.build import ensure
from makeway.dev.minors import DEFAULT
from makeway.dev.paths import CHECKOUT
from makeway.dev.progress import ConsoleProgress
from upstream_suites.build import build
from upstream_suites.cases import Case
from upstream_suites.differences import Differences, Verdict, judge, read
from upstream_suites.play import Programs, play, tests
from upstream_suites.suites import SHORT, SUITES, Suite, module_cache

LOGS: Final = CHECKOUT / "build" / "upstream-suites"


def main() -> int:
    """Run what was asked for; 1 where a case ended otherwise than listed, or there was none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [suite.name for suite in SUITES]
    parser.add_argument("--suites", default="", help=f"separated by commas; default all: {','.join(names)}")
    parser.add_argument("--cases", default="", help="a pattern as `go test -run` takes it; default all")
    parser.add_argument("--short", action="store_true", help="a dozen cases that stand for all")
    parser.add_argument("--keep", type=Path, default=LOGS, help="where programs and logs are put")
    given = parser.parse_args()
    if KUBERNETES != DEFAULT:
        text = f"the suites are those of Kubernetes {DEFAULT.name}"
        if not given.short:
            parser.error(text)
        print(f"{text}: not run")
        return 0
    if given.short:
        given.suites, given.cases = SHORT
    chosen = given.suites.split(",") if given.suites else names
    if unknown := set(chosen) - set(names):
        parser.error(f"unknown suites {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    verdicts = [run(suite, given.cases, given.keep / suite.name) for suite in SUITES if suite.name in chosen]
    return 0 if all(not one.wrong for one in verdicts) and any(one.cases for one in verdicts) else 1


def run(suite: Suite, pattern: str, directory: Path) -> Verdict:
    """Run a suite, or the cases of it that match, and print how they compare with the list."""
    built = ensure([ETCD, NATS_SERVER], ConsoleProgress())
    program = build(suite, directory / "build")
    programs = Programs(program, built["etcd"], built["nats-server"], module_cache())
    listed = read()
    found: list[Case] = []
    wanted, slash, below = pattern.partition("/")
    for test in tests(programs):
        if test in listed.left_out_of(suite.name) or not re.search(wanted, test):
            continue
        parts = [below] if slash else listed.separate_of(suite.name, test) or [""]
        for number, part in enumerate(parts, 1):
            logs = directory / (test if len(parts) == 1 else f"{test}-{number}")
            matching = f"^{test}$/{part}" if part else f"^{test}$"
            found += _run_one(programs, matching, logs, suite, listed)
    verdict = judge(suite.name, found, listed, whole=not pattern)
    print(
        f"{suite.name}: {verdict.passed} cases pass, {verdict.different} differ as listed, "
        f"{len(verdict.wrong)} are otherwise than listed; logs: {directory}",
        flush=True,
    )
    for wrong in verdict.wrong:
        print(f"error: {suite.name}: {wrong}", file=sys.stderr)
    return verdict


def _run_one(
    programs: Programs, pattern: str, logs: Path, suite: Suite, listed: Differences
) -> tuple[Case, ...]:
    """Run in one process what matches, and print what came of it."""
    print(f"{suite.name}: {pattern}", flush=True)
    began = time.monotonic()
    played = play(programs, pattern, logs)
    for case in played.cases:
        note = ", listed" if listed.names(suite.name, case.name) else ""
        print(f"  {case.outcome}{note} {case.name} ({case.seconds:.1f} s)", flush=True)
    took = time.monotonic() - began
    print(f"{suite.name}: {took:.0f} s; attempts by result: {played.attempts}", flush=True)
    return played.cases


if __name__ == "__main__":
    sys.exit(main())
