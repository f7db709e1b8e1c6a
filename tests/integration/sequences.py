"""Small clusters in which something happens while preemptors wait, as values; and how two plays are judged.

`draw(seed)` and `judge` are pure. `integration.sequences_played` plays them on real control planes.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from integration.builders import PodBuilder, make_pod
from integration.drawing import ALOOF_FROM, NEVER_EVICT, SHUNNED, UNTOUCHABLE
from integration.extending import EXTENDERS, SHUT, resource
from makeway.dev.kwok import AFTER_GRACE
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER

LATEST_SECONDS = 5.0
"""So much later than kube-scheduler makeway may bind a pod."""
RESTART_AT = 1.5
"""Seconds after the beginning at which the part that a sequence restarts is stopped, and started again."""
OWN_CLASS = "own"
"""The PriorityClass of a sequence's own, of value 10."""
FINALIZER = "tests.makeway.dev/held"
ZONES = ("zone-a", "zone-b")

_NODE_CPU = 1000
_LONG_SECONDS = 3600
_COMES = 0.5

Act = Literal["comes", "joins", "ends", "is let go", "loses its taint", "loses its class", "is claimed"]
"""A pod comes, a node joins, a pod ends at once, a terminating pod loses its finalizer, ..."""
Leaves = Literal["at once", "long grace", "finalizer"]
"""How a deleted pod leaves: at once, after an hour, or once it is let go."""


@dataclass(frozen=True)
class Room:
    """A node of 1,000 milli-CPU; `closed` by a taint that no pod tolerates."""

    name: str
    zone: str = ZONES[0]
    closed: bool = False


@dataclass(frozen=True)
class Held:
    """A pod; it is a preemptor where it has no node.

    Attributes:
        cpu: Milli-CPU.
        started: When it says that it started, in seconds; no two pods say the same, so that no choice of
            victims ends on names.
        kept: Whether the policy protects it; for kube-scheduler its priority is out of reach instead.
        claim: "" for none, "bound" for one with its volume, "waits" for one that the scheduler binds.
        asks: The name of the extender that is asked about it, "" for none.
    """

    name: str
    priority: str
    cpu: int
    node: str = ""
    started: int = 0
    leaves: Leaves = "at once"
    kept: bool = False
    shunned: bool = False
    aloof: bool = False
    claim: str = ""
    asks: str = ""

    def builder(self, *, plain: bool, own_class: str) -> PodBuilder:
        """Begin it anew for one of the control planes; `plain` is that of kube-scheduler alone."""
        pod = make_pod(self.name).cpu(f"{self.cpu}m")
        priority = own_class if self.priority == OWN_CLASS else self.priority
        pod.priority(UNTOUCHABLE if self.kept and plain else priority)
        if self.node:
            pod.on(self.node).started(self.started)
        if self.leaves == "long grace":
            pod.grace(_LONG_SECONDS).leaves(AFTER_GRACE)
        if self.leaves == "finalizer":
            pod.finalizer(FINALIZER)
        if self.kept:
            pod.annotation(NEVER_EVICT, "true")
        if self.shunned:
            pod.label(SHUNNED, "loud")
        if self.aloof:
            pod.annotation(ALOOF_FROM, "loud")
        if self.claim:
            pod.spec(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": self.name}}])
        if self.asks:
            pod.resource(resource(self.asks), 1)
        return pod


@dataclass(frozen=True)
class Step:
    """What happens `at` so many seconds after the beginning, to a pod or a node: itself, or its name."""

    at: float
    act: Act
    subject: Held | Room | str


@dataclass(frozen=True)
class Sequence:
    """What is there at the beginning, and what happens, in the order of time.

    `kinds` name what was drawn. `restart` is the part that is restarted at `RESTART_AT`, "" for none.
    """

    seed: int
    kinds: tuple[str, ...]
    nodes: tuple[Room, ...]
    pods: tuple[Held, ...]
    steps: tuple[Step, ...]
    restart: str = ""

    @property
    def preemptors(self) -> tuple[Held, ...]:
        """The pods that come, in the order in which they come."""
        return tuple(step.subject for step in self.steps if isinstance(step.subject, Held))


RELIEFS = ("node-joins", "pod-ends", "taint-goes", "victim-let-go", "nothing")
"""Where room appears while preemptors wait."""
EXTRAS = ("class-deleted", "claim-bound", "claim-late", "claim-waits", "filter", "kept", "extender")
PARTS = (SCHEDULER, PLANNER, EVICTOR)


def draw(seed: int) -> Sequence:
    """Draw one to three full nodes, one or two equal preemptors, and what happens while they wait."""
    chance = random.Random(seed)
    relief = chance.choices(RELIEFS, (3, 3, 2, 2, 2))[0]
    leaves: Leaves = (
        "at once" if relief == "nothing" else chance.choice(("long grace", "finalizer", "at once"))
    )
    if relief == "victim-let-go":
        leaves = "finalizer"
    extras = set(chance.sample(EXTRAS, chance.choice((0, 1, 1, 2))))
    claims = sorted(one for one in extras if one.startswith("claim-"))
    extras -= set(claims[1:])
    asks = chance.choice(tuple(EXTENDERS)) if "extender" in extras else ""
    restart = chance.choice(PARTS) if chance.random() < 0.3 else ""

    size = chance.choice((500, 1000))
    full = [Room(f"n{number}") for number in range(chance.randint(1, 2))]
    if asks:
        full.append(Room(f"{SHUT}0"))
    if claims:
        full.append(Room("far", zone=ZONES[1]))
    victims = [pod for node in full for pod in _fill(chance, node.name, extras, leaves)]
    preemptors = [
        Held(
            f"p{number}",
            "high",
            size,
            aloof="filter" in extras,
            claim="waits" if claims == ["claim-waits"] else "bound" if claims else "",
            asks=asks,
        )
        for number in range(chance.choice((1, 1, 2)))
    ]
    begin = _COMES + ("class-deleted" in extras) * 0.5
    steps = [Step(begin, "comes", pod) for pod in preemptors]
    if "class-deleted" in extras:
        steps.append(Step(0.2, "loses its class", OWN_CLASS))
    late = chance.choice((1.0, 3.0)) if claims == ["claim-late"] else 0.0
    steps += [Step(late, "is claimed", pod.name) for pod in preemptors if claims]
    rooms, stays, after = _relief(relief, begin + chance.choice((1.5, 2.0, 3.0)), victims)
    pods = tuple(replace(pod, started=number) for number, pod in enumerate([*victims, *stays]))
    kinds = (relief, leaves, *sorted(extras), *([f"extender-{asks}"] if asks else []))
    return Sequence(
        seed=seed,
        kinds=(*kinds, *([f"restart-{restart}"] if restart else [])),
        nodes=(*full, *rooms),
        pods=pods,
        steps=tuple(sorted([*steps, *after], key=lambda step: step.at)),
        restart=restart,
    )


def _fill(chance: random.Random, node: str, extras: set[str], leaves: Leaves) -> list[Held]:
    """Fill a node with one or two victims, of which some are of the sequence's own class, or kept."""
    sizes = chance.choice(((1000,), (500, 500)))
    return [
        Held(
            f"{node}-v{number}",
            OWN_CLASS
            if "class-deleted" in extras and chance.random() < 0.6
            else chance.choice(("low", "mid")),
            size,
            node,
            leaves=leaves,
            kept="kept" in extras and chance.random() < 0.4,
            shunned="filter" in extras and chance.random() < 0.5,
        )
        for number, size in enumerate(sizes)
    ]


def _relief(relief: str, at: float, victims: list[Held]) -> tuple[list[Room], list[Held], list[Step]]:
    """Return further nodes and pods, and the steps by which room appears."""
    match relief:
        case "node-joins":
            return [], [], [Step(at, "joins", Room("new"))]
        case "pod-ends":
            return [Room("other")], [Held("stays", "high", _NODE_CPU, "other")], [Step(at, "ends", "stays")]
        case "taint-goes":
            return [Room("closed", closed=True)], [], [Step(at, "loses its taint", "closed")]
        case "victim-let-go":
            return [], [], [Step(at, "is let go", pod.name) for pod in victims]
    return [], [], []


def together(sequences: Iterable[Sequence], most: int) -> list[list[Sequence]]:
    """Part sequences into lots that are played at once: a restarted part is the same for all of a lot."""
    ordered = sorted(sequences, key=lambda one: one.restart)
    lots = []
    for _, same in groupby(ordered, key=lambda one: one.restart):
        alike = list(same)
        lots += [alike[begin : begin + most] for begin in range(0, len(alike), most)]
    return lots


Bound = Mapping[str, float]
"""When pods were bound, in seconds after the beginning; pods that were not are not in it."""


def differences(theirs: Bound, mine: Bound) -> list[float]:
    """Return by how many seconds makeway bound its first, second, ... pod later than kube-scheduler did.

    The pods of a sequence are alike, so that either may get the room that is there for one.
    """
    pairs = zip(sorted(theirs.values()), sorted(mine.values()), strict=False)
    return [ours - first for first, ours in pairs]


def judge(theirs: Bound, mine: Bound, *, away_seconds: float = 0.0) -> str:
    """Say what makeway bound too late or not at all, "" where nothing.

    `away_seconds`: how much longer than kube-scheduler a part of makeway was away for its restart.
    """
    latest = LATEST_SECONDS + away_seconds
    if len(mine) < len(theirs):
        times = ", ".join(f"{at:.1f} s" for at in sorted(theirs.values()))
        return f"kube-scheduler binds {len(theirs)} ({times}), makeway {len(mine)} in {latest:.0f} s more"
    late = [one for one in differences(theirs, mine) if one > latest]
    return f"makeway binds {max(late):.1f} s later than kube-scheduler" if late else ""
