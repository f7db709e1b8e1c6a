"""How the demo reads: chapters, a table of the cluster, a timetable, every claim with a tick or a cross."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from makeway.bus.messages import DecisionRecord, EvictionOrder, Outcome
from makeway.dev.demo.timeline import PodSeen

_WIDTH = 100


class Narrator:
    """Prints to standard output; keeps count of the claims that did not hold."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = _WIDTH
        self._zero = 0.0
        self._rows: list[tuple[float, str]] = []
        self.held = 0
        self.broken: list[str] = []

    def chapter(self, title: str) -> None:
        """Begin a part of the story."""
        self._console.print()
        self._console.print(Rule(f"[bold]{title}", align="left"))

    def say(self, text: str) -> None:
        """Print a sentence."""
        self._console.print(text, markup=False)

    def cluster(self, pods: Sequence[PodSeen]) -> None:
        """Show which pod is where."""
        nodes = sorted({pod.node for pod in pods if pod.node})
        table = Table(box=None, pad_edge=False, padding=(0, 4, 0, 0))
        columns = [[pod for pod in pods if pod.node == node] for node in nodes]
        for node in nodes:
            table.add_column(node, style="bold")
        for row in range(max(map(len, columns), default=0)):
            cells = [sorted(column, key=lambda p: p.name) for column in columns]
            table.add_row(*[_cell(column[row]) if row < len(column) else "" for column in cells])
        self._console.print(table)

    def begin(self, zero: float, text: str) -> None:
        """Start a timetable; its times count from `zero`."""
        self._zero = zero
        self._rows = [(zero, text)]

    def event(self, at: float | None, text: str) -> None:
        """Put something that happened into the timetable; nothing where it was not seen."""
        if at is not None:
            self._rows.append((at, text))

    def decision(self, at: float | None, decision: DecisionRecord) -> None:
        """Put a decision into the timetable, with why."""
        victims = ", ".join(f"{v.name} ({v.rule}: {v.detail or v.priority})" for v in decision.victims)
        lines = [
            f"planner: {decision.candidates_total} of {decision.nodes_total} nodes would do, looked at in"
            f" {decision.plan_duration_microseconds / 1000:.1f} ms",
            f"  chosen {decision.nominated_node}: evict {victims}",
        ]
        for rank, candidate in enumerate(decision.candidates[:3], start=1):
            lines.append(
                f"  {rank}. {candidate.node}: {len(candidate.victims)} victim, highest priority"
                f" {candidate.highest_priority}, {candidate.pdb_violations} PDB violations"
                + (f"; before the next by {candidate.decided_by}" if rank < len(decision.candidates) else "")
            )
        self.event(at, "\n".join(lines))

    def group_decision(self, at: float | None, decision: DecisionRecord) -> None:
        """Put a decision about a pod group into the timetable: how many members go where, and for whom."""
        plan = decision.group_plan
        if plan is None:
            return
        members: Counter[str] = Counter()
        for placed in plan.placements:
            members[placed.node] += placed.count
        lines = [
            f"planner: room for {members.total()} of {plan.members} members on {len(members)} of"
            f" {decision.nodes_total} nodes, found in {decision.plan_duration_microseconds / 1000:.1f} ms"
        ]
        for node in sorted(members):
            victims = [f"{one.name} ({one.priority})" for one in decision.victims if one.node == node]
            lines.append(
                f"  {node}: {members[node]} without {', '.join(sorted(victims)) or 'evicting a pod'}"
            )
        if plan.price is not None:
            price = plan.price
            lines.append(
                f"  price: {price.victims} victims, highest priority {price.highest_priority},"
                f" {price.pdb_violations} PDB violations"
            )
        self.event(at, "\n".join(lines))

    def refusal(self, at: float | None, decision: DecisionRecord) -> None:
        """Put a decision that nothing helps into the timetable: why, who is spared, when to ask again."""
        diagnosis = decision.diagnosis
        lines = [f"planner: no: {diagnosis.message if diagnosis else ''}"]
        for near in decision.nearest:
            lines += [f"  {near.node}: {one.name} stays ({one.rule}: {one.detail})" for one in near.spared]
        if diagnosis and diagnosis.retry_at:
            lines.append(f"  to be asked again at {diagnosis.retry_at:%H:%M:%S} UTC")
        self.event(at, "\n".join(lines))

    def order(self, at: float | None, order: EvictionOrder) -> None:
        """Put an order into the timetable."""
        victims = ", ".join(sorted(victim.name for victim in order.victims))
        nodes = len({victim.node for victim in order.victims})
        where = f" on {nodes} nodes" if order.kind == "group" else f" on {order.node}"
        self.event(at, f"order {order.order_id} committed: evict {victims}{where}")

    def outcome(self, at: float | None, outcome: Outcome) -> None:
        """Put an outcome into the timetable."""
        why = f": {outcome.message or outcome.reason}" if outcome.result != "succeeded" else ""
        self.event(at, f"outcome {outcome.result}{why}")

    def timetable(self) -> None:
        """Print what happened, in order of time."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(justify="right", style="cyan", no_wrap=True)
        table.add_column()
        for at, text in sorted(self._rows, key=lambda row: row[0]):
            table.add_row(f"{(at - self._zero) * 1000:.0f} ms", text)
        self._console.print(table)

    def claim(self, text: str, holds: bool) -> None:
        """State what should have happened, and whether it did."""
        mark = "[green]✓[/]" if holds else "[red]✗[/]"
        self._console.print(f"{mark} ", end="")
        self._console.print(text, markup=False)
        if holds:
            self.held += 1
        else:
            self.broken.append(text)

    def finish(self, began: float) -> None:
        """Print the sum."""
        self._console.print()
        took = time.monotonic() - began
        if self.broken:
            self._console.print(f"[red]{len(self.broken)} of {self.held + len(self.broken)} claims failed[/]")
        else:
            self._console.print(f"[green]All {self.held} claims held.[/] The demo took {took:.0f} s.")


def _cell(pod: PodSeen) -> str:
    return f"{pod.app} [dim]{pod.name.removeprefix(pod.app).lstrip('-')}[/]"
