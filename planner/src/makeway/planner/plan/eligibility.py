"""Which nodes a preemptor can use at all, whichever pods go: what removing pods does not change.

The scheduler's filters that look at the node alone. Where they run they leave such nodes out before they ask,
but a pod that its full queue keeps out meets none of them: then every node is asked about. Sources:
kube-scheduler's NodeUnschedulable, TaintToleration, NodeAffinity, VolumeBinding and VolumeZone plugins.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from makeway.core.k8s.nodes import RequiredNodes
from makeway.planner.plan.constraints.pods import Constraints
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.columns import Flags, Ints
from makeway.planner.snapshot.state import Snapshot

CORDON = "Node is cordoned"
TAINT = "Untolerated taint"
SELECTOR = "Node selector or affinity does not match"
VOLUME = "Volume is not there"


def filters(snapshot: Snapshot, constraints: Constraints) -> Iterator[tuple[str, Flags]]:
    """Yield, in the scheduler's order, what may rule nodes out and bool[rows], the nodes that it leaves.

    What rules no node out is left out. O(nodes · conditions).
    """
    topology, rows = snapshot.topology, snapshot.columns.nodes
    if constraints.checks_cordons and topology.cordoned:
        yield CORDON, topology.open(constraints.tolerations, rows)
    if constraints.checks_taints and topology.tainted:
        yield TAINT, topology.eligible(RequiredNodes(), constraints.tolerations, rows)
    for required in constraints.required:
        yield SELECTOR, topology.eligible(required, None, rows)
    volumes, namespace = snapshot.volumes, constraints.namespace
    for required in dict.fromkeys(volumes.nodes(namespace, constraints.binds)):
        if not required.anywhere:
            yield VOLUME, topology.eligible(required, None, rows)
    zones = tuple(dict.fromkeys(volumes.zones(namespace, constraints.zoned)))
    if zones:
        yield VOLUME, topology.in_zones(zones, rows)


def potential_nodes(snapshot: Snapshot, question: Question) -> tuple[Ints, int]:
    """Return the rows that may be helped, ascending, and how many named nodes are not known."""
    names, left_out = question.nodes.names, question.left_out.nodes | question.left_out.pledged
    if question.nodes.all_but:
        chosen = snapshot.present.copy()
        chosen[snapshot.rows_named((*names, *left_out))] = False
        return np.flatnonzero(chosen), 0
    named = set(names) - left_out
    rows = np.sort(snapshot.rows_named(named))
    return rows, len(named) - int(rows.size)


def eligible(snapshot: Snapshot, constraints: Constraints, rows: Ints) -> Ints:
    """Return those of some rows that the preemptor can use, in their order."""
    for _, allowed in filters(snapshot, constraints):
        rows = rows[allowed[rows]]
    return rows


def ruled_out(snapshot: Snapshot, constraints: Constraints, rows: Ints) -> dict[str, int]:
    """Count those of some rows that the preemptor cannot use, by the first filter that says so."""
    counts: dict[str, int] = {}
    for reason, allowed in filters(snapshot, constraints):
        left = rows[allowed[rows]]
        if left.size < rows.size:
            counts[reason] = counts.get(reason, 0) + int(rows.size - left.size)
        rows = left
    return counts
