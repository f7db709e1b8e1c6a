"""When what is injected: a schedule drawn from a seed, so that a run can be played again. Pure.

A run is a row of storms, each followed by a calm in which every promise with a bound in time has to be kept.
In every second storm planners are killed while they commit, one after another, and nothing else is done.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from makeway.dev.options import EVICTOR, NATS, PLANNER, SCHEDULER

STORM_SECONDS = 30.0
CALM_SECONDS = 45.0
MOST_AT_ONCE = 6
"""Injections in one storm."""

KILL, STOP, API = "kill", "stop", "api"
LINE, CLOCK, BRAKE, QUOTA, FORGE, QUORUM = "line", "clock", "brake", "quota", "forge", "quorum"
"""Lines cut; a wall clock that is wrong; the brake; a lowered maximum; forged messages; nats-servers lost."""
FREEZE, COMMIT = "freeze", "commit"
"""The nats-server that leads the stream of orders stopped; planners killed between commit and answer."""

API_ANSWERS = (409, 422, 429, 500, 503)
API_BREAKS = ("cut", "drop", "delay")
WATCH_ENDS = ("close", "expire", "freeze")
LINE_FAULTS = tuple(f"{what} {how}" for what in ("api", "nats", "all") for how in ("cut", "silent", "slow"))
OFFSETS_MS = (-1500, -700, 700, 1500)
"""How far a clock of planner or evictor is off. NTP keeps clocks within some milliseconds."""
FORGERIES = ("order", "quota-order", "outcome", "replayed-order", "replayed-outcome", "junk", "control")


@dataclass(frozen=True)
class Injection:
    """One thing that is done to the cluster.

    at_seconds: after the load has begun. seconds: how long it lasts. target: the process, or the component
    whose requests are spoilt. detail: which fault, for kinds that have several.
    """

    at_seconds: float
    kind: str
    target: str
    seconds: float
    detail: str = ""

    @property
    def name(self) -> str:
        """What it counts as."""
        part = "" if self.target == "cluster" else self.target.split("-")[0]
        return " ".join(word for word in (self.kind, part, self.detail) if word)

    def __str__(self) -> str:
        """As a line of the log."""
        return f"{self.at_seconds:7.1f} s {self.kind} {self.target} {self.detail} for {self.seconds:.1f} s"


KINDS = (
    KILL,
    KILL,
    KILL,
    STOP,
    STOP,
    API,
    API,
    LINE,
    LINE,
    CLOCK,
    BRAKE,
    QUOTA,
    FORGE,
    FORGE,
    QUORUM,
    FREEZE,
)
"""Kinds that a storm is drawn from; those that are named more often come more often."""

_SKEWED = {LINE: (PLANNER, EVICTOR, SCHEDULER), CLOCK: (PLANNER, EVICTOR)}
"""Whose lines are cut, and whose clocks can be wrong: what is written in Go asks the kernel for the time."""


def draw(seed: int, minutes: float, processes: Sequence[str]) -> list[Injection]:
    """Draw the injections of a run, in order of time; `processes`: what may be killed and stopped."""
    chance = random.Random(seed)
    servers = {name for name in processes if name.startswith(NATS)}
    found: list[Injection] = []
    for number, (begin, _) in enumerate(storms(minutes)):
        if number % 2:
            found.append(Injection(begin, COMMIT, PLANNER, STORM_SECONDS))
            continue
        free = list(processes)
        found += [_one(chance, begin, free, servers) for _ in range(chance.randint(2, MOST_AT_ONCE))]
    return sorted(found, key=lambda one: one.at_seconds)


def storms(minutes: float) -> list[tuple[float, float]]:
    """Begin and end of each storm, in seconds."""
    begin, found = CALM_SECONDS / 3, []
    while begin + STORM_SECONDS + CALM_SECONDS <= minutes * 60:
        found.append((begin, begin + STORM_SECONDS))
        begin += STORM_SECONDS + CALM_SECONDS
    return found


def _one(chance: random.Random, begin: float, free: list[str], servers: set[str]) -> Injection:
    """One injection of a storm; a process is taken from `free`, so that it suffers one thing at a time."""
    at = round(begin + chance.uniform(0, STORM_SECONDS / 2), 1)
    left = begin + STORM_SECONDS - at
    kind = chance.choice(KINDS)
    whole = round(left, 1)
    match kind:
        case "brake" | "quota":
            return Injection(at, kind, "cluster", round(min(left, chance.uniform(5, 20)), 1))
        case "forge":
            return Injection(at, kind, "nats", whole, chance.choice(FORGERIES))
        case "quorum" | "freeze" if servers <= set(free):
            free[:] = [name for name in free if not name.startswith(NATS)]
            return Injection(at, kind, "nats", round(chance.uniform(3, min(left, 12)), 1))
        case "line" | "clock":
            cut = [name for name in free if name.partition("-")[0] in _SKEWED[kind]]
            if cut:
                free.remove(target := chance.choice(cut))
                detail = chance.choice(LINE_FAULTS) if kind == LINE else str(chance.choice(OFFSETS_MS))
                return Injection(at, kind, target, round(left * chance.uniform(0.3, 1), 1), detail)
    if kind not in (KILL, STOP) or not free:
        return Injection(at, API, chance.choice((PLANNER, EVICTOR, SCHEDULER)), whole, _fault(chance))
    target = free.pop(chance.randrange(len(free)))
    longest = 5.0 if target in ("kube-apiserver", "etcd") else 20.0
    seconds = min(left, chance.choice((0.3, 2.0, 5.0, longest)) * chance.uniform(0.5, 1.0))
    return Injection(at, kind, target, round(seconds, 1))


def _fault(chance: random.Random) -> str:
    """A fault of the API server, by its name: what is spoilt, and how."""
    if chance.random() < 0.25:
        return f"watch {chance.choice(WATCH_ENDS)}"
    how = chance.choice((*map(str, API_ANSWERS), *API_BREAKS))
    return f"{chance.choice(('write', 'write', 'read'))} {how}"


def usual_processes(*, planners: int, evictors: int, schedulers: int, nats_servers: int) -> list[str]:
    """Name the processes that are killed and stopped; those of which one is away most often come twice."""
    numbers = {PLANNER: planners, EVICTOR: evictors, SCHEDULER: schedulers, NATS: nats_servers}
    names = [
        name if number == 1 else f"{name}-{number}"
        for name, count in numbers.items()
        for number in range(1, count + 1)
    ]
    return [*names, "kube-apiserver"]
