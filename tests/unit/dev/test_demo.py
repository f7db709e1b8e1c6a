"""The demo: what its scenarios need, and how it tells of a pod group."""

import io
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace
from rich.console import Console

from builders_bus import NOW, make_decision, make_group_order, make_order, make_outcome, make_victim
from makeway.bus.decisions import DecisionRecord, GroupDecision, RankedCandidate
from makeway.bus.plan import GroupPrice, MemberPlacement
from makeway.cli.main import SUB_COMMANDS
from makeway.core.comparison import LEAST_LOST_WORK
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


def test_a_preemption_is_told_in_the_order_of_its_causes_however_late_pods_are_seen() -> None:
    order = replace(make_order(), decision_id="dec-1", created_at=NOW + timedelta(milliseconds=80))
    planned = make_decision(decision_id="dec-1", preemptor=order.preemptor)
    planned = replace(planned, at=NOW + timedelta(milliseconds=60))
    outcome = replace(make_outcome(order), finished_at=NOW + timedelta(milliseconds=137))
    at = NOW.timestamp()
    tell: list[Callable[[Narrator], None]] = [
        lambda narrator: narrator.bound(at + 0.120, order, "bound"),
        lambda narrator: narrator.outcome(outcome),
        lambda narrator: narrator.carried_out(at + 0.150, order, "leaves"),
        lambda narrator: narrator.order(order),
        lambda narrator: narrator.nominated(at + 0.090, order, "nominated"),
        lambda narrator: narrator.decision(planned),
    ]
    source = random.Random(1)
    for _ in range(20):
        narrator, output = told()
        narrator.begin(at, "created")
        source.shuffle(tell)
        for one in tell:
            one(narrator)
        narrator.timetable()
        lines = [line.strip() for line in output.getvalue().splitlines()]

        # The planner's and the evictor's words are of the time they say; a pod is seen later than it changes.
        assert [line for line in lines if re.match(r"\d+ ms", line)] == [
            "0 ms  created",
            f"60 ms  {next(line for line in lines if 'planner:' in line)[7:]}",
            "80 ms  nominated",
            f"80 ms  {next(line for line in lines if 'committed' in line)[7:]}",
            "137 ms  leaves",
            "137 ms  outcome succeeded",
            "137 ms  bound (seen at 120 ms)",
        ]


def test_a_decision_by_lost_work_tells_what_both_would_lose() -> None:
    candidates = (
        RankedCandidate("n1", (make_victim("a"),), decided_by=LEAST_LOST_WORK, lost_work_seconds=1),
        RankedCandidate("n2", (make_victim("b"),), lost_work_seconds=9),
    )
    narrator, output = told()
    narrator.begin(NOW.timestamp(), "created")
    narrator.decision(make_decision(candidates=candidates))
    narrator.timetable()

    assert "before the next by least-lost-work, 1 s of work rather than 9 s" in output.getvalue()


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
