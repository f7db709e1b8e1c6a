"""Random clusters with gangs, by size and theme; a seed says which, where nothing else does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from differential.gang_case import (
    HOST,
    OWN_QUEUE,
    PRIORITY,
    RACK,
    ZONE,
    Amounts,
    Case,
    Members,
    Node,
    Queue,
    Running,
    Spread,
)
from makeway.core.policy.document import OBJECTIVE, GroupTerm

SMALL, MIDDLE, LARGE, VAST, WHOLE, CROWDED = "3-8", "9-20", "21-40", "60-150", "151-400", "60-100-crowded"
BANDS: Final = {
    SMALL: (3, 8),
    MIDDLE: (9, 20),
    LARGE: (21, 40),
    VAST: (60, 150),
    WHOLE: (151, 400),
    CROWDED: (60, 100),
}
"""Numbers of nodes. Of the last three, which the exact solver does not reach, no seed is by itself; the nodes
of the last one hold up to 60 pods."""

SHARES: Final = {SMALL: 750, MIDDLE: 225, LARGE: 25}
"""Of a thousand seeds. Each BLOCK of seeds has just these parts, in an order of its own."""

BLOCK: Final = 40

PLAIN, CLASSES, RULES, BUDGETS, QUEUES = "plain", "classes", "rules", "budgets", "queues"
UNITS, WIDE, FULL_QUEUE, DOMAIN = "units", "wide", "units-in-full-queue", "domain"
THEMES: Final = (PLAIN, CLASSES, RULES, BUDGETS, QUEUES, UNITS, WIDE, FULL_QUEUE, DOMAIN)
"""`rules`: of members among themselves and towards pods of their nodes. `wide`: over zones and racks, towards
pods that may go. The others are called by what they have."""

OBJECTIVES: Final[tuple[tuple[GroupTerm, ...], ...]] = (
    *[OBJECTIVE] * 3,
    ("victims", "prioritySum", "highestPriority"),
    ("highestPriority", "budgets", "groups", "victims"),
    ("groups", "budgets", "highestPriority", "highestVictims", "prioritySum"),
)
"""Of vast clusters; the policy's own most often."""

GOALS: Final = (CLASSES, RULES, BUDGETS, QUEUES, UNITS)
"""Themes of which each has a goal of its own, and twice as many draws as others."""

TURNS: Final = (*THEMES, *GOALS)


def band_of(seed: int) -> str:
    """Return the size of a seed's cluster."""
    block, place = divmod(seed, BLOCK)
    bands = [band for band, share in SHARES.items() for _ in range(share * BLOCK // sum(SHARES.values()))]
    random.Random(f"bands {block}").shuffle(bands)
    return bands[place]


def draw(seed: int, theme: str = "", band: str = "") -> Case:
    """Make a case."""
    theme = theme or TURNS[seed % len(TURNS)]
    return _Draw(random.Random(f"{theme} {seed}"), theme, band or band_of(seed)).case()


@dataclass
class _Draw:
    """One draw under way."""

    pick: random.Random
    theme: str
    band: str
    nodes: list[Node] = field(default_factory=list)
    pods: list[Running] = field(default_factory=list)

    @property
    def is_vast(self) -> bool:
        """Whether the cluster is larger than the exact solver reaches."""
        return self.band in (VAST, WHOLE, CROWDED)

    @property
    def _scale(self) -> int:
        """How many times as much a node holds."""
        return 5 if self.band == CROWDED else 1

    def case(self) -> Case:
        pick = self.pick
        self._nodes()
        units = frozenset(f"u{number}" for number in range(self._units()))
        gangs = [f"g{number}" for number in range(self._gangs())]
        priorities = {group: pick.choice([0, 0, 5, 7]) for group in (*sorted(units), *gangs)}
        self._pods(sorted(units), gangs, priorities)
        classes = self._classes()
        total = sum(one.count for one in classes)
        bound = {group: sum(one.group == group for one in self.pods) for group in gangs}
        tight = self.theme == BUDGETS
        case = Case(
            theme=self.theme,
            nodes=tuple(self.nodes),
            pods=tuple(self.pods),
            classes=classes,
            must=total if pick.random() < 0.75 else pick.randint(max(1, total // 2), total),
            budgets={name: pick.choice(self._allowed(tight)) for name in "abcd"},
            units=units,
            gangs={group: pick.randint(1, max(1, count)) for group, count in bound.items()},
            domain=pick.choice([ZONE, RACK]) if self.theme == DOMAIN else "",
            queues=self._queues(classes),
            changes=pick.random() < 0.3,
            chunked=pick.random() < 0.5,
        )
        return self._vast(case) if self.is_vast else case

    def _vast(self, case: Case) -> Case:
        """Return a vast case with what such ones have besides: objectives, bounds, placed members."""
        pick, total = self.pick, sum(one.count for one in case.classes)
        domain, racks = case.domain, case.domains(RACK)
        if domain and total > len(case.nodes) // len(racks) * 2:
            domain = ZONE
        there = [node for node in range(len(case.nodes)) if domain and case.place(domain, node)]
        return replace(
            case,
            domain=domain,
            objective=pick.choice(OBJECTIVES),
            most_victims=pick.choice([1_000, 1_000, 1_000, total * 2, total]),
            placed=pick.choice(there) if there and pick.random() < 0.5 else None,
            changes=False,
            chunked=False,
        )

    def _allowed(self, tight: bool) -> list[int]:
        """Return how many pods a budget may let go."""
        if self.is_vast:
            return [0, 0, 1, len(self.nodes) // 10] if tight else [0, 2, 10, len(self.nodes) // 4]
        return [0, 0, 1, 2] if tight else [0, 1, 2, 3]

    def _units(self) -> int:
        if self.is_vast:
            return len(self.nodes) // self.pick.choice(
                [4, 8, 16] if self.theme in (UNITS, FULL_QUEUE) else [16, 401]
            )
        if self.theme == UNITS:
            return self.pick.randint(4, 8)
        if self.theme == FULL_QUEUE:
            return self.pick.randint(1, 4)
        return self.pick.choice([0, 1, 2]) if self.theme == BUDGETS else self.pick.choice([0, 0, 0, 1, 2])

    def _gangs(self) -> int:
        if self.is_vast:
            return self.pick.choice([0, 2, 8])
        return self.pick.choice([1, 2, 3]) if self.theme == BUDGETS else self.pick.choice([0, 0, 1, 2])

    def _nodes(self) -> None:
        pick, (least, most) = self.pick, BANDS[self.band]
        count = pick.randint(least, most)
        a_rack = pick.randint(1, 3) if self.band == SMALL else pick.randint(2, 32 if self.is_vast else 5)
        zones = pick.randint(2, 3)
        unlabelled = pick.random() < 0.1
        uniform = pick.random() < 0.3
        shape = (pick.choice([400, 500, 600]), pick.choice([400, 500, 600]))
        for number in range(count):
            rack = number // a_rack
            room = shape if uniform else (pick.choice([400, 500, 600, 800]), pick.choice([400, 500, 800]))
            name = "" if unlabelled and pick.random() < 0.2 else f"r{rack}"
            room = (room[0] * self._scale, room[1] * self._scale)
            self.nodes.append(Node(f"z{rack % zones}", name, room))

    def _pods(self, units: list[str], gangs: list[str], priorities: dict[str, int]) -> None:
        pick, theme = self.pick, self.theme
        grouped = {UNITS: 0.6, BUDGETS: 0.4, FULL_QUEUE: 0.5}.get(theme, 0.25)
        covered = {BUDGETS: 0.7}.get(theme, 0.25)
        levels = pick.choice([[0], [0, 5], [0, 0, 5, 7], [0, 0, 0, 5, PRIORITY], [1, 2, 3, 4, 5]])
        fullest = 4 if self.band == SMALL else 12 * self._scale if self.is_vast else 7
        forbids = pick.choice([ZONE, RACK, RACK]) if theme == WIDE else HOST
        for number, node in enumerate(self.nodes):
            left = [amount - pick.choice([0, 0, 0, 50, 100]) for amount in node.room]
            for _ in range(pick.randint(5 * self._scale if self.is_vast else 1, fullest)):
                size = self._size(left)
                if size is None:
                    break
                left = [had - asked for had, asked in zip(left, size, strict=True)]
                group = pick.choice([*units, *gangs]) if units + gangs and pick.random() < grouped else ""
                self.pods.append(
                    Running(
                        uid=f"p{len(self.pods):03}",
                        node=number,
                        size=size,
                        priority=priorities[group] if group else pick.choice(levels),
                        budget=pick.choice("abcd") if pick.random() < covered else "",
                        group=group,
                        port=theme == RULES and pick.random() < 0.15,
                        role=self._role(),
                        forbids=forbids if theme in (WIDE, RULES) and pick.random() < self._forbid() else "",
                        queue=self._queue(group),
                    )
                )

    def _size(self, left: list[int]) -> Amounts | None:
        if min(left) < 50:
            return None
        sizes = [50, 70, 90, 130, 400, 900] if self._scale > 1 else [50, 100, 100, 200, 300]
        cpu = min(self.pick.choice(sizes), left[0])
        memory = cpu if self.pick.random() < 0.5 else self.pick.choice([50, 100, 200])
        return cpu, min(memory, left[1])

    def _forbid(self) -> float:
        return 0.004 if self.is_vast else 0.06

    def _role(self) -> str:
        often = {WIDE: 0.2, RULES: 0.2}.get(self.theme, 0.0) / (8 if self.is_vast else 1)
        return self.pick.choice(["blocker", "friend", "mate"]) if self.pick.random() < often else ""

    def _queue(self, group: str) -> str:
        if self.theme == FULL_QUEUE:
            return OWN_QUEUE if group or self.pick.random() < 0.4 else "other"
        if self.theme == QUEUES:
            return self.pick.choice([OWN_QUEUE, OWN_QUEUE, "other", "third"])
        return ""

    def _queues(self, classes: tuple[Members, ...]) -> dict[str, Queue] | None:
        pick = self.pick
        if self.theme not in (QUEUES, FULL_QUEUE):
            return None
        names = (OWN_QUEUE, "other", "third")
        held = {
            name: [sum(pod.size[number] for pod in self.pods if pod.queue == name) for number in (0, 1)]
            for name in names
        }
        asked = [sum(one.size[number] * one.count for one in classes) for number in (0, 1)]
        limited = self.theme == FULL_QUEUE or pick.random() < 0.7
        share = pick.choice([0.0, 0.3, 0.6, 0.9, 1.0])
        most: list[int | None] = [
            max(int(held[OWN_QUEUE][number] + asked[number] * share), asked[number])
            if limited and pick.random() < 0.7
            else None
            for number in (0, 1)
        ]
        found = {OWN_QUEUE: Queue(tuple(most), (0, 0))}
        for name in names[1:]:
            kept = pick.choice([0, 0, 0.5, 0.8, 1.0])
            found[name] = Queue((None, None), (int(held[name][0] * kept), int(held[name][1] * kept)))
        return found

    def _classes(self) -> tuple[Members, ...]:
        pick, nodes = self.pick, len(self.nodes)
        if self.is_vast:
            total = pick.randint(nodes // 10, pick.choice([nodes // 3, nodes, nodes, nodes * 2]))
        elif self.band == SMALL:
            total = pick.randint(2, 7)
        else:
            total = pick.randint(max(4, nodes // 2), min(40, nodes + 6))
        several = pick.randint(2, 4) if self.theme == CLASSES else pick.choice([1, 1, 1, 2])
        several = min(several, total)
        cuts = sorted(pick.sample(range(1, total), several - 1))
        counts = [high - low for low, high in zip([0, *cuts], [*cuts, total], strict=True)]
        classes = []
        for count in counts:
            cpu = pick.choice([50, 100, 100, 150, 200, 300, *([400] if self.is_vast else [])])
            memory = cpu if pick.random() < 0.5 else pick.choice([50, 100, 200, 300])
            classes.append(Members((cpu * self._scale, memory * self._scale), count))
        if self.theme == RULES:
            classes = self._with_rules(classes)
        if self.theme == WIDE:
            key = pick.choice([ZONE, RACK, RACK])
            classes[0] = replace(classes[0], avoids=key)
            if pick.random() < 0.3:
                classes[0] = self._apart(classes[0], pick.choice([RACK, HOST]))
        if self.theme == CLASSES and pick.random() < 0.3:
            some = frozenset(number for number in range(nodes) if pick.random() < 0.7)
            classes[-1] = replace(classes[-1], nodes=some)
        return tuple(classes)

    def _with_rules(self, classes: list[Members]) -> list[Members]:
        pick = self.pick
        kind = pick.choice(["apart", "apart", "spread", "spread", "together", "near", "avoids", "port"])
        wide = pick.choice([ZONE, RACK])
        first = classes[0]
        if kind == "apart":
            first = self._apart(first, pick.choice([HOST, HOST, RACK]))
            first = replace(first, apart_from_all=pick.random() < 0.3)
        elif kind == "spread":
            spread = Spread(pick.choice([ZONE, RACK, HOST]), pick.choice([1, 1, 2]), pick.random() < 0.5)
            if spread.all_classes:
                return [replace(one, spread=spread) for one in classes]
            first = replace(first, spread=spread)
            if len(classes) > 1:
                classes[1] = replace(classes[1], apart=pick.choice([HOST, RACK, ""]))
        elif kind == "together":
            first = self._together(first, wide)
        elif kind == "near":
            first = replace(first, near=wide)
        elif kind == "avoids":
            first = replace(first, avoids=HOST)
        else:
            first = replace(first, port=True)
        return [first, *classes[1:]]

    def _apart(self, members: Members, key: str) -> Members:
        """Return members of which no two are in one domain, in a vast cluster one for each at most."""
        count = min(members.count, len(self._domains(key))) if self.is_vast else members.count
        return replace(members, apart=key, count=count)

    def _together(self, members: Members, key: str) -> Members:
        """Return members that are all in one domain, in a vast cluster one on each of its nodes at most."""
        room = len(self.nodes) // len(self._domains(key))
        return replace(
            members, together=key, count=min(members.count, room) if self.is_vast else members.count
        )

    def _domains(self, key: str) -> set[int] | set[str]:
        return (
            set(range(len(self.nodes)))
            if key == HOST
            else {(one.zone, one.rack)[key == RACK] for one in self.nodes}
        )
