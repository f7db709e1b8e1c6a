"""Random clusters against kube-scheduler's own code, as many as wanted: `make differential N=10000`.

    PYTHONPATH=tests .venv/bin/python -m differential.run --count 10000
    PYTHONPATH=tests .venv/bin/python -m differential.run --first 47 --count 1 --constraints resources,budgets

Half of the clusters have only kinds of constraints that must agree exactly, half have any. A disagreement is
shrunk and written to tests/differential/cases, where it is replayed as a test from then on.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from differential.case import decode
from differential.compare import EXACT, Comparison, compare
from differential.report import Report
from differential.shrink import Cluster, shrink
from differential.simulated import disagreements
from differential.upstream import Oracle, Seeds, build, random_cases

CASES = Path(__file__).parent / "cases"
_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Result:
    """One compared case, drawn from these constraints; `line` is kept where the two disagree."""

    seed: int
    potential: int
    comparison: Comparison
    line: bytes
    constraints: tuple[str, ...]

    @property
    def again(self) -> str:
        """The command that makes and compares the same cluster."""
        return f"make differential FIRST={self.seed} N=1 CONSTRAINTS={','.join(self.constraints)}"


def compared(program: Path, seeds: Seeds) -> list[Result]:
    """Compare some random clusters; runs in a process of its own."""
    results = []
    for line in random_cases(program, seeds):
        case = decode(line)
        comparison = compare(case)
        simulated = tuple(disagreements(case))
        comparison = replace(comparison, disagreements=comparison.disagreements + simulated)
        kept = line if comparison.disagreements else b""
        results.append(Result(case.seed, len(case.answer.potential), comparison, kept, seeds.constraints))
    return results


def batches(first: int, count: int, constraints: tuple[str, ...]) -> Iterator[Seeds]:
    """Cut the seeds into batches; without given constraints, every other batch has exact kinds alone."""
    exact = tuple(sorted(EXACT))
    for place, start in enumerate(range(first, first + count, _AT_ONCE)):
        kinds = constraints or (exact if place % 2 else ())
        yield Seeds(start, min(_AT_ONCE, first + count - start), kinds)


def compare_all(program: Path, seeds: Sequence[Seeds], workers: int) -> Iterator[Result]:
    """Compare all batches, side by side, in the order in which they are done."""
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(compared, program, batch) for batch in seeds]):
            yield from done.result()


def shrunk(program: Path, line: bytes) -> Cluster:
    """Make a disagreement small, with kube-scheduler's answer for the small cluster."""
    whats = {one.what for one in compare(decode(line)).disagreements}
    with Oracle(program) as oracle:

        def differs(cluster: Cluster) -> bool:
            answered = oracle.answer(cluster)
            if "answer" not in answered:
                return False
            again = compare(decode(msgspec.json.encode(answered))).disagreements
            return bool(whats & {one.what for one in again})

        return oracle.answer(shrink(msgspec.json.decode(line), differs))


def keep(cluster: Cluster) -> Path:
    """Write a case down, with what differs, to be replayed."""
    CASES.mkdir(exist_ok=True)
    path = CASES / f"seed-{cluster['seed']}.json"
    told = [str(one) for one in compare(decode(msgspec.json.encode(cluster))).disagreements]
    cluster = {**cluster, "note": "; ".join(told)}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(cluster), indent=1) + b"\n")
    return path


def main() -> int:
    """Compare, report, shrink; 1 where anything differs that may not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument(
        "--first", type=int, default=int(time.time()), help="the first seed; default: the time"
    )
    parser.add_argument(
        "--constraints", default="", help="kinds to draw from, separated by commas; default all"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shrink", type=int, default=3, help="how many disagreements to shrink and keep")
    given = parser.parse_args()
    program = build()
    constraints = tuple(given.constraints.split(",")) if given.constraints else ()
    report, wrong = Report(), []
    for result in compare_all(program, list(batches(given.first, given.count, constraints)), given.workers):
        report.add(result.comparison, result.potential)
        if result.comparison.disagreements:
            wrong.append(result)
    print(f"seeds from {given.first}")
    print("\n".join(report.lines()))
    for result in sorted(wrong, key=lambda one: len(one.line))[: given.shrink]:
        path = keep(shrunk(program, result.line))
        print(f"{result.comparison.disagreements[0]}\n  shrunk to {path}\n  again: {result.again}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
