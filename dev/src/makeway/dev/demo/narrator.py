"""How the demo reads: chapters, a table of the cluster, a timetable, every claim with a tick or a cross."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from makeway.bus.decisions import DecisionRecord, RankedCandidate
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.comparison import LEAST_LOST_WORK
from makeway.dev.demo.causes import Happened, in_order
from makeway.dev.demo.timeline import PodSeen, when

_BEGIN = "begin"


class Narrator:
    """Prints to standard output; keeps count of the claims that did not hold."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._zero = 0.0
        self._rows: list[Happened[tuple[float, str]]] = []
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
        """Start a timetable; its times count from `zero`, in seconds since 1970."""
        self._zero = zero
        self._rows = [Happened((zero, text), zero, key=_BEGIN)]

    def event(
        self, at: float | None, text: str, *, key: str = "", after: Sequence[str] = (), seen: bool = True
    ) -> None:
        """Put something that happened into the timetable; nothing where it was not seen.

        `key`, `after`, `seen`: as of `makeway.dev.demo.causes.Happened`.
        """
        if at is not None:
            self._rows.append(Happened((at, text), at, key, (_BEGIN, *after), seen))

    def nominated(self, at: float | None, order: EvictionOrder, text: str) -> None:
        """Put a nomination into the timetable, which an order waits for."""
        self.event(at, text, key=f"nominated {order.order_id}", after=(order.decision_id,))

    def carried_out(self, at: float | None, order: EvictionOrder, text: str) -> None:
        """Put what was done or undone under an order into the timetable: before its outcome."""
        self.event(at, text, key=f"done {order.order_id}", after=(order.order_id,))

    def bound(self, at: float | None, order: EvictionOrder, text: str) -> None:
        """Put a binding into the timetable: after the outcome of the order that made room."""
        self.event(at, text, after=(f"outcome {order.order_id}",))

    def decision(self, decision: DecisionRecord) -> None:
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
            )
            if rank < len(decision.candidates):
                lost = _lost(candidate, decision.candidates[rank])
                lines.append(f"     before the next by {candidate.decided_by}{lost}")
        self._decided(decision, lines)

    def group_decision(self, decision: DecisionRecord) -> None:
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
        self._decided(decision, lines)

    def refusal(self, decision: DecisionRecord) -> None:
        """Put a decision that nothing helps into the timetable: why, who is exempt, when to ask again."""
        diagnosis = decision.diagnosis
        lines = [f"planner: no: {diagnosis.message if diagnosis else ''}"]
        for near in decision.nearest:
            lines += [f"  {near.node}: {one.name} stays ({one.rule}: {one.detail})" for one in near.spared]
        if diagnosis and diagnosis.retry_at:
            lines.append(f"  to be asked again at {diagnosis.retry_at:%H:%M:%S} UTC")
        self._decided(decision, lines)

    def quota_decision(self, decision: DecisionRecord) -> None:
        """Put a decision about a queue into the timetable: how much is too much, and whose it is."""
        if (quota := decision.quota) is None:
            return
        shares = ", ".join(
            f"{share.queue.rpartition('.')[2]} {share.amounts.get('cpu', 0)}m" for share in quota.shares
        )
        self._decided(decision, [f"planner: {quota.need['cpu'] // 1000} CPUs too much; shares: {shares}"])

    def _decided(self, decision: DecisionRecord, lines: Sequence[str]) -> None:
        self.event(when(decision), "\n".join(lines), key=decision.decision_id, seen=False)

    def order(self, order: EvictionOrder) -> None:
        """Put an order into the timetable."""
        victims = ", ".join(sorted(victim.name for victim in order.victims))
        nodes = len({victim.node for victim in order.victims})
        where = {"group": f" on {nodes} nodes", "quota": ""}.get(order.kind, f" on {order.node}")
        self.event(
            when(order),
            f"order {order.order_id} committed: evict {victims}{where}",
            key=order.order_id,
            after=(order.decision_id, f"nominated {order.order_id}"),
            seen=False,
        )

    def outcome(self, outcome: Outcome) -> None:
        """Put an outcome into the timetable."""
        why = f": {outcome.message or outcome.reason}" if outcome.result != "succeeded" else ""
        self.event(
            when(outcome),
            f"outcome {outcome.result}{why}",
            key=f"outcome {outcome.order_id}",
            after=(outcome.order_id, f"done {outcome.order_id}"),
            seen=False,
        )

    def timetable(self) -> None:
        """Print what happened, in order of time and of causes."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(justify="right", style="cyan", no_wrap=True)
        table.add_column()
        for row in in_order(self._rows):
            seen_at, text = row.item
            shown, seen = self._clock(row.at), self._clock(seen_at)
            # Its effect was seen before the message of its cause was written.
            table.add_row(shown, f"{text} (seen at {seen})" if row.at > seen_at and shown != seen else text)
        self._console.print(table)

    def _clock(self, at: float) -> str:
        return f"{(at - self._zero) * 1000:.0f} ms"

    def claim(self, text: str, holds: bool) -> None:
        """State what should have happened, and whether it did."""
        mark = "[green]✓[/]" if holds else "[red]✗[/]"
        self._console.print(f"{mark} ", end="")
        self._console.print(text, markup=False)
        if holds:
            self.held += 1
        else:
            self.broken.append(text)

    def finish(self, played_seconds: float, before_seconds: float) -> None:
        """Print the sum: what held, for how long it was played, and how long building and starting took."""
        self._console.print()
        if self.broken:
            self._console.print(f"[red]{len(self.broken)} of {self.held + len(self.broken)} claims failed[/]")
        else:
            self._console.print(f"[green]All {self.held} claims held.[/]")
        self._console.print(
            f"Played in {played_seconds:.0f} s, after {before_seconds:.0f} s of building and starting."
        )


def _lost(best: RankedCandidate, other: RankedCandidate) -> str:
    """Return what both lose, where that decided."""
    if best.decided_by != LEAST_LOST_WORK:
        return ""
    return f", {best.lost_work_seconds} s of work rather than {other.lost_work_seconds} s"


def _cell(pod: PodSeen) -> str:
    last = pod.name.removeprefix(pod.app).rpartition("-")[2]
    return f"{pod.app} [dim]{last}[/]"
