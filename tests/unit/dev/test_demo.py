"""The demo: what its scenarios need, and what is best run after one."""

import os
import subprocess
import sys

import pytest

from makeway.cli.main import SUB_COMMANDS
from makeway.dev.demo.command import next_commands
from makeway.dev.demo.scenarios import SCENARIOS
from makeway.dev.paths import CHECKOUT

pytestmark = pytest.mark.tools


def test_what_is_best_run_next_are_commands_of_this_program() -> None:
    for scenario in SCENARIOS.values():
        shell, ask, page = (line.split() for line in next_commands(scenario).splitlines())

        assert shell[0] == "eval"
        assert page == ["makeway", "ui"]
        assert ask[1] in SUB_COMMANDS


def test_the_readme_names_every_scenario() -> None:
    (line,) = [one for one in (CHECKOUT / "README.md").read_text().splitlines() if "SCENARIO=" in one]

    assert [name for name in SCENARIOS if name != "main" and name not in line] == []


@pytest.mark.parametrize("minor", ["1.36", "1.35"])
def test_a_scenario_that_a_minor_version_does_not_have_is_refused_with_the_reason(minor: str) -> None:
    program = "from makeway.cli.main import main\nmain()"
    result = subprocess.run(
        [sys.executable, "-c", program, "demo", "gang"],
        env={**os.environ, "KUBERNETES": minor},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 2
    assert result.stderr == (
        f"makeway: scenario gang: it cannot be shown on Kubernetes {minor}: kube-scheduler asks for room for "
        "a pod group as one from 1.37 on; run it with KUBERNETES=1.37\n"
    )
    assert result.stdout == ""
