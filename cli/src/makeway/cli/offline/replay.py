"""`makeway replay`: decide again what was decided, from what the planner saw, and compare."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from makeway.bus.client import Bus
from makeway.bus.decisions import DecisionRecord
from makeway.bus.reasons import reason_of
from makeway.cli.connect import completion
from makeway.cli.connect.session import Installation, connected
from makeway.cli.errors import NEGATIVE, fail
from makeway.cli.history.streams import must_exist
from makeway.cli.offline.finding import decision_named, order_named, recording
from makeway.cli.output import OutputOption, Printer
from makeway.cli.units import names_of, who_text
from makeway.core.k8s.times import api_time
from makeway.core.text import counted
from makeway.planner.offline.replaying import Difference, Replay, differences
from makeway.planner.recording.entries import RecordingError

app = typer.Typer(add_completion=False)

FORMAT: Final = "makeway.dev/v1"
_STDIN: Final = "-"
_WRITTEN_SECONDS: Final = 1.5


class Export(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision with all that it takes to make it again; the parts of its recording as they were stored."""

    api_version: str
    kind: str
    decision: DecisionRecord
    parts: tuple[bytes, ...]


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came out. `differences` is empty where the same was decided again."""

    decision_id: str
    same: bool
    differences: tuple[Difference, ...]
    recorded: DecisionRecord
    replayed: DecisionRecord


@app.command()
@connected
async def replay(
    installation: Installation,
    what: Annotated[
        str,
        typer.Argument(
            metavar="ORDER|DECISION",
            help="Id of an order or of a decision, or its beginning.",
            show_default=False,
            autocompletion=completion.records,
        ),
    ] = "",
    *,
    from_file: Annotated[
        str, typer.Option("--from", metavar="FILE", help="Replay an exported decision; - reads stdin.")
    ] = "",
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write the decision with all that it was made from into a file, for a bug report. It holds "
            "names and labels of the whole cluster.",
        ),
    ] = None,
    output: OutputOption = "text",
) -> int:
    """Decide again what was decided, offline, from what the planner saw then, and compare field by field.

    The leading planner keeps recordings for a day at the most. Exit code 1 where something else comes out, or
    where there is no such decision or no whole recording of it.
    """
    if bool(what) == bool(from_file):
        raise typer.BadParameter("give the id of an order or of a decision, or --from FILE")
    if from_file:
        exported = _exported(from_file)
    else:
        async with installation.bus() as bus:
            await must_exist(bus)
            exported = await _collected(bus, await _decision(bus, what))
    if export is not None:
        _write(export, exported)
    answer = _replayed(exported)
    printer = Printer(output)
    if printer.data:
        printer.document(answer)
    else:
        for line in _lines(answer):
            printer.line(line)
    if export is not None:
        printer.note(f"written: {export}; replay it with `makeway replay --from {export}`")
    return 0 if answer.same else NEGATIVE


async def _decision(bus: Bus, what: str) -> DecisionRecord:
    """Find the record of a decision, or of the one that an order carries out."""
    decision_id = what
    if what.startswith("ord-"):
        order = await order_named(bus, what)
        if order is None:
            fail(f"there is no order {what}; orders are kept for a week")
        if not order.decision_id:
            fail(f"{order.order_id} names no decision, so that there is nothing to replay")
        decision_id = order.decision_id
    record = await decision_named(bus, decision_id)
    if record is None:
        fail(f"there is no decision {decision_id}; decisions are kept for three days")
    return record


async def _collected(bus: Bus, record: DecisionRecord) -> Export:
    """Read the parts of the recording up to the decision."""
    if not record.recording:
        quota = f", or the cluster changed while it planned for this {record.kind}"
        quota = quota if record.kind != "pod" else ""
        fail(
            f"{record.decision_id} was not recorded: its planner was started with --no-record, had only just "
            f"begun to lead, or was just applying changed disruption budgets{quota}"
        )
    try:
        parts, found = await _parts(bus, record)
        if not found:
            # It is written half a second after the reply, and then takes its way.
            await asyncio.sleep(_WRITTEN_SECONDS)
            parts, found = await _parts(bus, record)
    except RecordingError as error:
        fail(f"{record.decision_id} cannot be replayed: {error}; recordings are kept for a day at the most")
    return Export(api_version=FORMAT, kind="RecordedDecision", decision=record, parts=tuple(parts))


async def _parts(bus: Bus, record: DecisionRecord) -> tuple[list[bytes], bool]:
    """Read the recording up to the decision, and return whether that was found. Raises RecordingError."""
    parts: list[bytes] = []
    replay = Replay()
    async with aclosing(recording(bus, record.recording)) as found:
        async for part in found:
            parts.append(part)
            if any(one.decision_id == record.decision_id for one in replay.read(part)):
                return parts, True
    return parts, False


def _replayed(exported: Export) -> ReplayResult:
    record = exported.decision
    try:
        again = _again(exported)
    except (RecordingError, ValueError) as error:
        fail(f"{record.decision_id} cannot be replayed: {error}")
    if again is None:
        fail(f"{record.decision_id} is not in its recording; recordings are kept for a day at the most")
    found = differences(record, again)
    return ReplayResult(
        decision_id=record.decision_id,
        same=not found,
        differences=tuple(found),
        recorded=record,
        replayed=again,
    )


def _again(exported: Export) -> DecisionRecord | None:
    """Decide again; None where the decision is not in the parts. Raises RecordingError, ValueError."""
    replay = Replay()
    for part in exported.parts:
        for decided in replay.read(part):
            if decided.decision_id == exported.decision.decision_id:
                return replay.again(decided)
    return None


def _lines(answer: ReplayResult) -> list[str]:
    record = answer.recorded
    of = f"{record.decision_id} of {api_time(record.at)}"
    lines = [f"{of}, for {who_text(record)}, snapshot {record.snapshot_revision}"]
    if not answer.same:
        lines.append(f"something else comes out, in {len(answer.differences)} fields:")
        lines += [
            f"  {one.field}: recorded {_short(one.recorded)}, replayed {_short(one.replayed)}"
            for one in answer.differences
        ]
        return lines
    lines.append("the same comes out again:")
    victims = f"victims: {', '.join(names_of(record.victims)) or 'none'}"
    if record.quota is not None:
        lines.append(f"  {record.quota.result}; {victims}")
    elif record.diagnosis is not None:
        lines.append(f"  {record.diagnosis.reason}: {record.diagnosis.message}")
    elif record.group_plan is not None:
        nodes = len({one.node for one in record.group_plan.placements})
        lines.append(f"  on {counted(nodes, 'node')}; {victims}")
    elif record.nominated_node:
        lines.append(f"  {record.nominated_node}, best of {record.candidates_total}; {victims}")
    else:
        lines.append(f"  {record.unmodelled_total} nodes that only the scheduler's filters can judge")
    return lines


def _short(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _exported(file: str) -> Export:
    try:
        data = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as error:
        fail(f"{file}: cannot be read: {reason_of(error)}")
    try:
        exported = msgspec.json.decode(data, type=Export)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fail(
            f"{file}: no exported decision: {reason_of(error)}; "
            "make one with `makeway replay ID --export FILE`"
        )
    if exported.api_version != FORMAT or exported.kind != "RecordedDecision":
        fail(f"{file}: is {exported.kind} of {exported.api_version}, no RecordedDecision of {FORMAT}")
    return exported


def _write(path: Path, exported: Export) -> None:
    try:
        path.write_bytes(msgspec.json.encode(exported))
    except OSError as error:
        fail(f"{path}: cannot be written: {reason_of(error)}")
