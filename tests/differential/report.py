"""Counts over many comparisons: how they agree, and what looking at all nodes saves."""

from collections import Counter
from dataclasses import dataclass, field

from differential.compare import Comparison, Score

_SHIFT = 2**31


@dataclass(slots=True)
class Better:
    """All nodes against a tenth of them, over the clusters in which both found a candidate."""

    clusters: int = 0
    strictly: int = 0
    all_nodes: Counter[str] = field(default_factory=Counter)
    sample: Counter[str] = field(default_factory=Counter)

    def add(self, ours: Score, sampled: Score) -> None:
        """Count one cluster."""
        self.clusters += 1
        self.strictly += ours < sampled
        for score, counts in ((ours, self.all_nodes), (sampled, self.sample)):
            violations, _, priority_sum, victims, _ = score
            counts["victims"] += victims
            counts["violations"] += violations
            counts["priorities"] += priority_sum

    def lines(self) -> list[str]:
        """Say it in three lines."""
        if not self.clusters:
            return []
        ours, theirs = self.all_nodes, self.sample

        def saved(name: str) -> str:
            if not theirs[name]:
                return "none in either"
            return f"{ours[name]} instead of {theirs[name]} ({ours[name] / theirs[name] - 1:+.0%})"

        weight = ours["priorities"] / theirs["priorities"]
        return [
            f"all nodes against a tenth of them, {self.clusters} clusters: a better node in {self.strictly}",
            f"  victims: {saved('victims')}; violations of budgets: {saved('violations')}",
            f"  sum of priorities, each plus 2^31: {weight:.3f} of the sample's",
        ]


@dataclass(slots=True)
class Report:
    """What came of all cases, by level."""

    clusters: Counter[bool] = field(default_factory=Counter)
    nodes: dict[bool, Counter[str]] = field(default_factory=lambda: {True: Counter(), False: Counter()})
    disagreements: int = 0
    better: Better = field(default_factory=Better)

    def add(self, comparison: Comparison, potential: int) -> None:
        """Count one case; `potential`: nodes that removing pods might have helped."""
        self.clusters[comparison.exact] += 1
        self.nodes[comparison.exact].update(comparison.nodes)
        self.disagreements += bool(comparison.disagreements)
        if comparison.ours and comparison.sampled and potential > 1:
            self.better.add(comparison.ours, comparison.sampled)

    def lines(self) -> list[str]:
        """Say it in a few lines."""
        levels = {True: "exact", False: "never stricter"}
        told = [
            f"{levels[exact]}: {self.clusters[exact]} clusters, "
            + ", ".join(f"{count} nodes {relation}" for relation, count in self.nodes[exact].most_common())
            for exact in (True, False)
            if self.clusters[exact]
        ]
        return [*told, *self.better.lines(), f"clusters with a disagreement: {self.disagreements}"]
