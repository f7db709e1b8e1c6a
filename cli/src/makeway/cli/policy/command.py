"""`makeway policy`: check policies and queues before they are applied."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from makeway.bus.reasons import reason_of
from makeway.cli.output import OutputOption, Printer
from makeway.cli.policy.lint import Finding, lint, policy_in
from makeway.core.config.document import ConfigError, Problem
from makeway.core.policy.document import Policy, parse_policy
from makeway.core.policy.preemption import LabelExpression, PartySelector, PreemptionRule

app = typer.Typer(add_completion=False, no_args_is_help=True)

_STDIN = "-"


@app.callback()
def policy() -> None:
    """Check policies and queues before they are applied."""


@app.command("lint")
def lint_files(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="policy.yaml, queues.yaml, or manifests with their ConfigMaps; - reads stdin.",
        ),
    ],
    output: OutputOption = "text",
) -> None:
    """Say what is wrong with policies and queues, as planner and evictor would.

    Its content says which a file is. Every problem is printed, as file:line: path: what is wrong; what to do.
    Exit code 1 where something is refused or cannot be read.
    """
    findings = [finding for file in files for finding in _file(file)]
    printer = Printer(output)
    if printer.data:
        printer.document(_as_data(findings))
    else:
        for finding in findings:
            for line in _lines(finding):
                printer.line(line)
    if any(finding.problems for finding in findings):
        raise typer.Exit(1)


@app.command("explain")
def explain_file(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="policy.yaml, or a manifest with its ConfigMap; - reads stdin."),
    ],
) -> None:
    """Print the rules of who may preempt whom in the order in which they are asked, with those of bands.

    Exit code 1 where the policy is refused or cannot be read.
    """
    printer = Printer("text")
    try:
        policy = parse_policy(*policy_in(_text(file), "<stdin>" if file == _STDIN else file))
    except ConfigError as error:
        for problem in error.problems:
            printer.line(problem.describe(error.source))
        raise typer.Exit(1) from error
    for line in explained(policy):
        printer.line(line)


def explained(policy: Policy) -> Iterator[str]:
    """Return a line for each rule, and what holds where none matches."""
    table = policy.preemption.table
    for number, rule in enumerate(table, 1):
        yield (
            f"{number}. {rule.name}: {_action(rule)}; "
            f"preemptors: {_side(rule.preemptors)}; victims: {_side(rule.victims)}"
        )
    rest = "no rule keeps the victim" if table else "the policy has no rules of who may preempt whom"
    yield f"{'else' if table else 'always'}: {rest}; priorities, protection, budgets and the like hold anyway"


def _action(rule: PreemptionRule) -> str:
    if rule.minimum_run_time:
        seconds = rule.minimum_run_time / timedelta(seconds=1)
        return f"allow once the victim has run {seconds:g} s, until then deny"
    return rule.action


def _side(side: PartySelector) -> str:
    parts = [
        *(f"namespace label {_condition(one)}" for one in side.namespace_selector.expressions),
        *(f"label {_condition(one)}" for one in side.label_selector.expressions),
        *([f"class {' or '.join(side.priority_classes)}"] if side.priority_classes else []),
        *([f"queue {' or '.join(side.queues)}"] if side.queues else []),
    ]
    return ", ".join(parts) or "all"


def _condition(one: LabelExpression) -> str:
    match one.operator:
        case "Exists":
            return one.key
        case "DoesNotExist":
            return f"!{one.key}"
    return f"{one.key} {'in' if one.operator == 'In' else 'notin'} ({', '.join(one.values)})"


def _file(name: str) -> list[Finding]:
    source = "<stdin>" if name == _STDIN else name
    try:
        return lint(_text(name), source)
    except ConfigError as error:
        return [Finding(source, "", error.problems)]


def _text(name: str) -> str:
    """Read a file, or stdin. Raises ConfigError where that cannot be."""
    try:
        data = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem("", "", f"cannot be read: {reason_of(error)}", "give a text file that you may read")
        raise ConfigError("<stdin>" if name == _STDIN else name, [problem]) from error


def _lines(finding: Finding) -> list[str]:
    lines = [problem.describe(finding.source) for problem in finding.problems]
    if not finding.problems:
        lines.append(f"{finding.source}: {finding.kind} accepted, {finding.revision}")
    lines += [f"{finding.source}: warning: {warning}" for warning in finding.warnings]
    return lines + [f"{finding.source}: note: {note}" for note in finding.notes]


def _as_data(findings: list[Finding]) -> dict[str, Any]:
    accepted = not any(finding.problems for finding in findings)
    results = [
        {
            "source": finding.source,
            "kind": finding.kind,
            "accepted": not finding.problems,
            "revision": finding.revision,
            "problems": [asdict(problem) for problem in finding.problems],
            "warnings": finding.warnings,
            "notes": finding.notes,
        }
        for finding in findings
    ]
    return {"accepted": accepted, "results": results}
