"""The simulation of the protocol itself: the same seed is the same trace, and some seeds hold."""

import os
import subprocess
import sys
from pathlib import Path

from protocol.run import simulate

ROOT = Path(__file__).parents[2]


def in_another_process(hash_seed: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "protocol.run", *arguments]
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_a_seed_is_one_trace_byte_for_byte() -> None:
    arguments = ("--first", "101", "--count", "20", "--trace")

    assert in_another_process("1", *arguments) == in_another_process("2", *arguments)


def test_the_invariants_hold_under_seeded_faults() -> None:
    broken = {result.seed: result.problem for result in simulate(range(1, 301)) if result.problem}

    assert broken == {}
