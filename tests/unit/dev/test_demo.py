"""The demo: what its scenarios need, and how it tells of a pod group."""

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from builders_bus import NOW, make_group_order, make_victim
from makeway.bus.decisions import DecisionRecord, GroupDecision
from makeway.bus.plan import GroupPrice, MemberPlacement
from makeway.cli.main import SUB_COMMANDS
from makeway.dev.demo.command import next_commands
from makeway.dev.demo.narrator import Narrator
from makeway.dev.demo.scenarios import SCENARIOS
from makeway.dev.paths import CHECKOUT

pytestmark = pytest.mark.tools

WIDTH = 80


def told() -> tuple[Narrator, io.StringIO]:
    """Return a narrator on a terminal of 80 columns, and what it prints."""
    output = io.StringIO()
    return Narrator(Console(file=output, force_terminal=True, width=WIDTH, color_system=None)), output


def decision() -> DecisionRecord:
    order = make_group_order()
    return DecisionRecord(
        decision_id="dec-1",
        request_id="req-1",
        kind="group",
        cluster_uid="cluster-1",
        planner="planner-1",
        at=NOW,
        mode="enforce",
        status="candidates",
        snapshot_revision=1,
        nodes_total=3,
        victims=(make_victim("a", priority=10), make_victim("b", priority=100)),
        plan_duration_microseconds=1200,
        group=order.group,
        group_plan=GroupDecision(
            members=3,
            placements=(
                MemberPlacement(member_class=0, node="node-2", count=1),
                MemberPlacement(member_class=0, node="node-1", count=1),
                MemberPlacement(member_class=1, node="node-1", count=1),
            ),
            price=GroupPrice(highest_priority=100, victims=2),
        ),
    )


def test_a_decision_about_a_group_tells_who_goes_from_which_node() -> None:
    narrator, output = told()
    narrator.begin(NOW.timestamp() - 0.5, "PodGroup train")
    narrator.group_decision(decision())
    narrator.timetable()

    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    assert lines == [
        "  0 ms  PodGroup train",
        "500 ms  planner: room for 3 of 3 members on 2 of 3 nodes, found in 1.2 ms",
        "          node-1: 2 without a (10), b (100)",
        "          node-2: 1 without evicting a pod",
        "          price: 2 victims, highest priority 100, 0 PDB violations",
    ]


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
