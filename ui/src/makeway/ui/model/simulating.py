"""What would become of pods: of those pasted into a form, bounded, and of one that is pending. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec
import yaml

from makeway.planner.offline.applying import applied
from makeway.planner.offline.manifests import Manifest, ManifestError, documents
from makeway.planner.offline.obstacles import obstacles
from makeway.planner.offline.pending import asked_about, pending
from makeway.planner.offline.results import Pending, SimulatedPod
from makeway.planner.offline.simulation import Simulation
from makeway.planner.offline.world import World
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.node_scores import PlanCache

MOST_PODS: Final = 20
MOST_TEXT: Final = 64 * 1024
_MOST_DEPTH: Final = 50
_SOURCE: Final = "manifest"
_NOT_ASKED: Final = "not judged: what the API server would add or refuse: makeway simulate asks it"


def simulated(world: World, text: str, namespace: str, now: datetime) -> tuple[SimulatedPod, ...]:
    """Let pods come one after the other. Changes the world. Raises ManifestError."""
    check(text)
    found = documents(text, _SOURCE)
    kinds, replicas = _counted(found)
    nodes = world.snapshot.nodes
    if kinds["PodGroup"] or (kinds["DaemonSet"] and len(nodes) > MOST_PODS):
        raise ManifestError("PodGroups, and DaemonSets on many nodes: use `makeway simulate -f FILE`")
    if replicas > MOST_PODS:
        raise ManifestError(f"{replicas} pods: this form takes {MOST_PODS}; use `makeway simulate -f FILE`")
    new = applied(world, [(found, _SOURCE)], namespace)
    if len(new.pods) > MOST_PODS:
        told = f"{len(new.pods)} pods: this form takes {MOST_PODS}"
        raise ManifestError(f"{told}; use `makeway simulate -f FILE`")
    simulation = Simulation(world, now, namespace=namespace)
    return tuple(simulation.run(replace(pod, note=_NOT_ASKED)) for pod in new.pods)


def _counted(found: Iterable[Manifest]) -> tuple[Counter[str], int]:
    """Return how often each kind comes, also in Lists, and how many pods they ask for by number."""
    kinds: Counter[str] = Counter()
    replicas = 0
    left = list(found)
    while left:
        one = left.pop()
        items, spec = one.get("items"), one.get("spec")
        if isinstance(items, list):
            kind = str(one.get("kind") or "").removesuffix("List")
            left += [{"kind": kind, **item} for item in items if isinstance(item, dict)]
            continue
        kinds[str(one.get("kind"))] += 1
        asked = (
            [spec.get(field, 1) for field in ("replicas", "parallelism")] if isinstance(spec, dict) else []
        )
        replicas += max((number for number in asked if isinstance(number, int)), default=1)
    return kinds, replicas


def check(text: str) -> None:
    """Refuse what is small as text and large as objects: aliases, and what is nested too deep.

    Raises ManifestError.
    """
    if len(text) > MOST_TEXT:
        raise ManifestError(f"more than {MOST_TEXT // 1024} KiB: use `makeway simulate -f FILE`")
    depth = 0
    try:
        for event in yaml.parse(text, yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise ManifestError("YAML aliases are not taken here: write out what they stand for")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MOST_DEPTH:
                raise ManifestError(f"nested deeper than {_MOST_DEPTH}: that is no pod")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise ManifestError(f"{where}not YAML: {getattr(error, 'problem', None) or error}") from error


class Standing(msgspec.Struct, frozen=True, rename="camel"):
    """What is known of one pending pod. nodes: their names by what is in the way there."""

    found: Pending
    nodes: dict[str, tuple[str, ...]]


def standing_of(world: World, raw: bytes, now: datetime, ledger: Ledger | None = None) -> Standing:
    """Plan again for a pod of the world. `raw`: the v1.Pod; raises as `asked_about`."""
    request, question = asked_about(world, raw, now, ledger)
    return Standing(
        found=pending(world, raw, now, request, question),
        nodes=obstacles(world.snapshot, question, now, PlanCache()),
    )
