"""kube-scheduler's own benchmark with DefaultPreemption and with MakeWay: `make bench BENCH=scheduler`.

    make bench BENCH=scheduler WORKLOADS=PreemptionAsync/500,PreemptionBasic/1000 ROUNDS=3

With MakeWay its planner, its evictor and a nats-server run as processes of their own on the same machine;
API server and scheduler are one process there, as scheduler_perf has it. Rounds alternate, so that whatever
else the machine does meets both. When a workload's last round has
ended its figures are printed, and a line of them is written to docs/benchmarks.md (--write); a round without
results is left out of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.side_by_side.round import VARIANTS, Measured, play, programs
from bench.side_by_side.table import put, summary, table
from bench.side_by_side.workloads import ALL, BY_NAME
from makeway.dev.errors import DevError
from makeway.dev.paths import CHECKOUT

DOCUMENT = CHECKOUT / "docs" / "benchmarks.md"


def main() -> int:
    """Run what was asked for; 1 where a round did not end well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ",".join(workload.name for workload in ALL)
    parser.add_argument("--workloads", default="", help=f"separated by commas; default all: {names}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="in the order of the first round")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.relative_to(CHECKOUT)}, too")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="take CPU profiles, the benchmark's while the measured pods are bound; they cost time",
    )
    parser.add_argument("--keep", type=Path, help="where logs, profiles and raw figures shall stay")
    given = parser.parse_args()
    chosen = given.workloads.split(",") if given.workloads else list(BY_NAME)
    if unknown := [name for name in chosen if name not in BY_NAME]:
        parser.error(f"unknown workloads {', '.join(unknown)}; there are {names}")
    well = True
    with tempfile.TemporaryDirectory(prefix="makeway-bench-") as temporary:
        directory = given.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        built = programs(directory)
        for name in chosen:
            measured: list[Measured] = []
            for number in range(1, given.rounds + 1):
                order = given.variants.split(",")
                for variant in order if number % 2 else order[::-1]:
                    where = directory / name.replace("/", "-") / f"{number}-{variant}"
                    try:
                        one = play(BY_NAME[name], variant, built, where, given.profile)
                    except DevError as error:
                        # The other rounds are worth having: nobody may be watching.
                        print(f"error: {error}", file=sys.stderr)
                        one = Measured(variant, finished=False, seconds=0.0)
                    ended = "ended well" if one.finished else f"did not end well, see {where}/benchmark.log"
                    print(f"{name}, round {number}, {variant}: {one.seconds:.0f} s, {ended}", flush=True)
                    measured.append(one)
                    well = well and one.finished
            print(f"\n{table(name, measured)}", flush=True)
            if given.write:
                put(DOCUMENT, summary(name, measured))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
