"""The simulation of the protocol: a seed is one trace, the invariants hold, and defects are found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.mutants import MOST_SEEDS, MUTANTS, Mutant, seeds_needed
from protocol.run import simulate

ROOT = Path(__file__).parents[2]


def in_another_process(hash_seed: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "protocol.run", *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_a_seed_is_one_trace_byte_for_byte() -> None:
    arguments = ("--first", "101", "--count", "20", "--trace")

    assert in_another_process("1", *arguments) == in_another_process("2", *arguments)


def test_a_seed_is_the_same_trace_whatever_was_simulated_before() -> None:
    alone = [result.digest for result in simulate([7])]
    after_another = [result.digest for result in simulate([8, 7])]

    assert after_another[1:] == alone


def test_the_invariants_hold_under_seeded_faults() -> None:
    broken = {result.seed: result.problem for result in simulate(range(1, 301)) if result.problem}

    assert broken == {}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_defect_is_found_within_eight_thousand_seeds(mutant: Mutant) -> None:
    seeds, _ = seeds_needed(mutant, (mutant.seed, *range(1, MOST_SEEDS + 1)))

    assert seeds
