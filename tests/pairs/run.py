"""Draw many cases and write those that disagree: `make pairs N=20000 FIRST=0`.

`ALWAYS=preemption-rules` has a feature on in every case: so many sets of rules are drawn."""

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import structlog

from pairs.checking import disagreements
from pairs.drawing import FEATURES, PAIRS, Case, draw

FOUND = Path(__file__).parents[2] / "build/pairs"


def quiet() -> None:
    """Log nothing: evictors tell of every order."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


def kept(case: Case, found: list[str]) -> Path:
    """Write a case that disagrees; its seed draws it again."""
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"{case.seed}.json"
    path.write_text(json.dumps({"disagreements": found, "case": asdict(case)}, indent=1) + "\n")
    return path


def together(cases: list[Case]) -> Counter[tuple[str, str]]:
    """Count how often each pair was on together."""
    return Counter(pair for case in cases for pair in combinations(case.features, 2))


def main() -> int:
    """Draw, count and print; 1 where anything disagrees or a pair was not drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--always", default="", choices=FEATURES, help="a feature that every case has")
    options = parser.parse_args()
    quiet()
    failed, counts = 0, Counter[tuple[str, str]]()
    for seed in range(options.first, options.first + options.count):
        case = draw(seed, always=options.always)
        counts.update(combinations(case.features, 2))
        if found := disagreements(case):
            failed += 1
            print(f"seed {seed} ({', '.join(case.features)}): {found[0]} -> {kept(case, found)}")
    missing = [pair for pair in PAIRS if not counts[pair]]
    print(f"{options.count} cases, {failed} disagree; {len(PAIRS)} pairs, not drawn: {missing}")
    return int(bool(failed or missing))


if __name__ == "__main__":
    sys.exit(main())
