"""Simulate the protocol: `make simulate-protocol SEEDS=2000`, and one seed again with SEED=n TRACE=1.

PYTHONPATH=tests .venv/bin/python -m protocol.run --count 2000
PYTHONPATH=tests .venv/bin/python -m protocol.run --first 4711 --count 1 --trace
"""

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import structlog

from protocol.simulation import Result, Simulation
from protocol.table import load

_AT_ONCE = 50


def quiet() -> None:
    """Drop what the services log: the trace tells what they do."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )


def simulate(seeds: Iterable[int], *, trace: bool = False) -> Iterator[Result]:
    """Simulate some seeds, one after the other."""
    quiet()
    table = load()
    for seed in seeds:
        yield Simulation(seed, table).run(trace=trace)


def _batch(seeds: Sequence[int]) -> list[Result]:
    return list(simulate(seeds))


def results(first: int, count: int, jobs: int) -> Iterator[Result]:
    """Simulate many seeds, in several processes."""
    batches = [range(at, min(at + _AT_ONCE, first + count)) for at in range(first, first + count, _AT_ONCE)]
    if jobs == 1:
        for batch in batches:
            yield from _batch(batch)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(_batch, batches):
            yield from found


def main() -> None:
    """Simulate, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=2000, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--trace", action="store_true", help="print the trace of each seed")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first violation")
    options = parser.parse_args()
    began = time.perf_counter()
    if options.trace:
        failed = [
            r for r in simulate(range(options.first, options.first + options.count), trace=True) if _told(r)
        ]
        sys.exit(1 if failed else 0)
    total, injected, outcomes, violations = 0, Counter[str](), Counter[str](), 0
    numbers = Counter[str]()
    for result in results(options.first, options.count, options.jobs):
        total += 1
        injected.update(result.injected)
        outcomes.update(result.outcomes)
        numbers.update(checks=result.checks, orders=result.orders, deletes=result.deletes, steps=result.steps)
        if result.problem:
            violations += 1
            if options.keep_going:
                print(f"seed {result.seed}: {result.problem}")
                continue
            _told(result)
            break
    seconds = time.perf_counter() - began
    print(f"{total} seeds in {seconds:.0f} s, {violations} with a violation")
    print("counts:   " + ", ".join(f"{n} {what}" for what, n in sorted(numbers.items())))
    print("outcomes: " + ", ".join(f"{n} {what}" for what, n in sorted(outcomes.items())))
    print("injected: " + ", ".join(f"{n} {what}" for what, n in sorted(injected.items())))
    sys.exit(1 if violations else 0)


def _told(result: Result) -> bool:
    print(result.trace, end="")
    if result.problem:
        print(f"seed {result.seed}: {result.problem}")
        print(f"again: make simulate-protocol SEED={result.seed} TRACE=1")
    return bool(result.problem)


if __name__ == "__main__":
    main()
