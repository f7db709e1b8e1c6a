"""Nodes that would have room, but for pods elsewhere in their topology domain: which pods, and which domain.

A preemption takes pods of one node, so that pods of a rack's other nodes keep the whole rack.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from makeway.planner.plan.candidates import EvaluatedBatch
from makeway.planner.plan.constraints.layers import Layer
from makeway.planner.plan.naming import full_name, named_for
from makeway.planner.snapshot.columns import Flags
from makeway.planner.snapshot.records import PodRecord

_MOST_COUNTED = 100
"""Pods of a domain that are looked at: a zone may have ten thousand."""


def kept_by_domain(evaluated: EvaluatedBatch) -> Flags:
    """Return bool[M]: nodes that lack nothing but what constraints over a topology domain forbid."""
    found = evaluated.found
    wide = np.zeros(found.short.shape[0], np.bool_)
    for place, layer in enumerate(evaluated.layers.layers, found.asked.size):
        wide[place] = layer.domains is not None
    short = found.short > 0
    return np.asarray(short[wide].any(axis=0) & ~short[~wide].any(axis=0) & ~found.breaks_affinity)


def domain_texts(evaluated: EvaluatedBatch, place: int) -> Iterator[str]:
    """Yield which domains of one node are kept by which pods, named where they are of the pod's namespace.

    The sentence reaches the pod's condition, which tenants read. O(slots · nodes of the domain).
    """
    found, snapshot, question = evaluated.found, evaluated.inputs.snapshot, evaluated.inputs.question
    row = int(evaluated.batch.rows[place])
    for number, layer in enumerate(evaluated.layers.layers, found.asked.size):
        if layer.domains is None or found.short[number, place] <= 0:
            continue
        node = snapshot.nodes[snapshot.names[row]]
        domain = f"{layer.topology_key} {node.labels.get(layer.topology_key, '(none)')}"
        pods = sorted(_keeping(evaluated, layer, row), key=full_name)
        told = named_for(question.preemptor.namespace, pods)
        yield f"{domain} is kept by {told or 'pods that are to come'} ({layer.reason})"


def _keeping(evaluated: EvaluatedBatch, layer: Layer, row: int) -> Iterator[PodRecord]:
    """Yield pods in a node's domain that a constraint counts, at most _MOST_COUNTED."""
    snapshot, domains = evaluated.inputs.snapshot, layer.domains
    if domains is None or domains[row] < 0:
        return
    rows = np.flatnonzero((domains == domains[row]) & snapshot.present[: domains.size])
    signatures, places, slots = snapshot.columns.signatures(rows)
    counts = np.flatnonzero(layer.use.of(signatures) > 0)
    first = counts[np.lexsort((places[counts], slots[counts]))[:_MOST_COUNTED]]
    for slot, there in zip(slots[first].tolist(), rows[places[first]].tolist(), strict=True):
        yield snapshot.slots[there][slot]
