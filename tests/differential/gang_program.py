"""A gang's plans as an integer program: members on nodes, pods that go for them, and every rule.

It knows nothing of the planner's code. Pods that are alike on a node are one variable: how many of them go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from differential.gang_case import OWN_QUEUE, PRIORITY, RACK, RESOURCES, ZONE, Case, Members, Running
from differential.integer_program import Program


@dataclass(frozen=True)
class Alike:
    """Pods that are alike on a node; `gone`: how many go, None where they stay. Of a unit it is 0 or 1."""

    pods: tuple[Running, ...]
    gone: int | None
    whole: bool

    @property
    def first(self) -> Running:
        return self.pods[0]

    @property
    def count(self) -> int:
        return len(self.pods)

    @property
    def each(self) -> int:
        """How many of them one more of `gone` is."""
        return self.count if self.whole else 1


class GangProgram:
    """The program of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.program = Program()
        self.members = {
            (cls, node): self.program.variable(one.count)
            for cls, one in enumerate(case.classes)
            for node in range(len(case.nodes))
            if not one.nodes or node in one.nodes
        }
        self.used = [self.program.variable() for _ in case.nodes]
        self.occupied: dict[tuple[int, str, str], int] = {}
        self.units: dict[str, int] = {}
        self.groups = list(self._alike())
        self.program.equal(dict.fromkeys(self.members.values(), 1), case.must)
        self._of_nodes()
        for cls, one in enumerate(case.classes):
            self.program.at_most(self.here(range(len(case.nodes)), [cls]), one.count)
            self._of_class(cls, one)
        self._forbidden()
        self._domain()
        self._queues()
        self._where_victims_are()

    def _alike(self) -> Iterator[Alike]:
        """Put pods together that are alike."""
        case = self.case
        alike: defaultdict[Running, list[Running]] = defaultdict(list)
        for pod in case.pods:
            alike[replace(pod, uid="")].append(pod)
        staying = {pod.group for pod in case.pods if pod.group in case.units and pod.priority >= PRIORITY}
        for pod, pods in alike.items():
            if pod.priority >= PRIORITY or pod.group in staying:
                yield Alike(tuple(pods), None, False)
            elif pod.group in case.units:
                unit = self.units.setdefault(pod.group, len(self.program.mosts))
                if unit == len(self.program.mosts):
                    self.program.variable()
                yield Alike(tuple(pods), unit, True)
            else:
                yield Alike(tuple(pods), self.program.variable(len(pods)), False)

    def in_domain(self, cls: int, key: str, domain: str) -> int:
        """Return the variable that is 1 where a member of a class is in a domain, and may be else."""
        found = self.occupied.get((cls, key, domain))
        if found is None:
            found = self.occupied[cls, key, domain] = self.program.variable()
            for node in self.case.domains(key)[domain]:
                if (cls, node) in self.members:
                    count = self.case.classes[cls].count
                    self.program.at_most({self.members[cls, node]: 1, found: -count}, 0)
        return found

    def here(self, nodes: Iterable[int], classes: Iterable[int]) -> dict[int, float]:
        """Return the sum of the members of some classes on some nodes."""
        wanted = list(nodes)
        return {
            self.members[cls, node]: 1.0 for cls in classes for node in wanted if (cls, node) in self.members
        }

    def _keep(self, member: dict[int, float], pods: Sequence[Alike]) -> None:
        """Ask that all of some pods go where a sum, which is 0 or 1 then, is 1."""
        for one in pods:
            if one.gone is None:
                self.program.at_most(member, 0)
            else:
                most = 1 if one.whole else one.count
                self.program.at_most(
                    {**{name: most * count for name, count in member.items()}, one.gone: -1}, 0
                )

    def _of_nodes(self) -> None:
        case, program = self.case, self.program
        for node, there in enumerate(case.nodes):
            mine = [cls for cls in range(len(case.classes)) if (cls, node) in self.members]
            here = [one for one in self.groups if one.first.node == node]
            members = {self.members[cls, node]: 1.0 for cls in mine}
            for cls in mine:
                program.at_most({self.members[cls, node]: 1, self.used[node]: -case.classes[cls].count}, 0)
            program.at_most({self.used[node]: 1, **dict.fromkeys(members, -1)}, 0)
            for number in range(len(RESOURCES)):
                total = {self.members[cls, node]: float(case.classes[cls].size[number]) for cls in mine}
                free = there.room[number]
                for one in here:
                    size = one.first.size[number]
                    free -= size * one.count
                    if one.gone is not None:
                        total[one.gone] = total.get(one.gone, 0) - size * one.each
                program.at_most(total, free)
            ports = {self.members[cls, node]: 1.0 for cls in mine if case.classes[cls].port}
            if ports:
                program.at_most(ports, 1)
                self._keep(ports, [one for one in here if one.first.port])

    def _of_class(self, cls: int, one: Members) -> None:
        case, program = self.case, self.program
        all_classes = range(len(case.classes))
        mates = [pods for pods in self.groups if pods.first.role == "mate"]
        own = mates if cls == 0 else []
        if one.apart:
            for name, nodes in case.domains(one.apart).items():
                mine = self.here(nodes, [cls])
                program.at_most(mine, 1)
                inside = [pods for pods in (mates if one.apart_from_all else own) if pods.first.node in nodes]
                self._keep(mine, inside)
                for other in all_classes if one.apart_from_all else ():
                    if other != cls:
                        both = {self.in_domain(other, one.apart, name): 1.0, **mine}
                        program.at_most(both, 1)
        if one.avoids:
            self._none_beside(cls, one.avoids, [pods for pods in self.groups if pods.first.role == "blocker"])
        if one.near:
            friends = [pods for pods in self.groups if pods.first.role == "friend"]
            self._near(cls, one.near, friends, first=False)
        if one.together:
            self._near(cls, one.together, own, first=True)
        if one.spread is not None:
            counted = all_classes if one.spread.all_classes else [cls]
            self._spread(cls, one, counted, mates if one.spread.all_classes else own)

    def _none_beside(self, cls: int, key: str, pods: Sequence[Alike]) -> None:
        for name, nodes in self.case.domains(key).items():
            inside = [one for one in pods if one.first.node in nodes]
            if inside:
                self._keep({self.in_domain(cls, key, name): 1}, inside)

    def _left(self, pods: Sequence[Alike], nodes: Sequence[int]) -> tuple[dict[int, float], int]:
        """Return how many pods are left on some nodes: a sum, and a number to add to it."""
        total: Counter[int] = Counter()
        count = 0
        for one in pods:
            if one.first.node in nodes:
                count += one.count
                if one.gone is not None:
                    total[one.gone] -= one.each
        return {name: float(each) for name, each in total.items()}, count

    def _near(self, cls: int, key: str, pods: Sequence[Alike], *, first: bool) -> None:
        """Ask for one of some pods in each member's domain; or, where none is left, for one domain."""
        program, count = self.program, self.case.classes[cls].count
        domains = self.case.domains(key)
        one_only = program.variable() if first else None
        chosen: list[int] = []
        for nodes in domains.values():
            total, there = self._left(pods, nodes)
            open_ = {program.variable(): 1.0}
            program.at_most({**open_, **{name: -each for name, each in total.items()}}, there)
            if one_only is not None:
                chosen.append(program.variable())
                open_[chosen[-1]] = 1.0
            for name in self.here(nodes, [cls]):
                program.at_most({name: 1, **dict.fromkeys(open_, -count)}, 0)
        if one_only is not None:
            program.at_most({**dict.fromkeys(chosen, 1.0), one_only: -1}, 0)
            total, there = self._left(pods, [node for nodes in domains.values() for node in nodes])
            program.at_most({**total, one_only: there}, 0) if there else None
        labelled = {node for nodes in domains.values() for node in nodes}
        self._none_on(cls, labelled)

    def _none_on(self, cls: int, labelled: set[int]) -> None:
        """Ask for no member on nodes without a label."""
        rest = self.here([node for node in range(len(self.case.nodes)) if node not in labelled], [cls])
        if rest:
            self.program.at_most(rest, 0)

    def _spread(self, cls: int, one: Members, counted: Iterable[int], pods: Sequence[Alike]) -> None:
        program, case, spread = self.program, self.case, one.spread
        assert spread is not None
        most = sum(members.count for members in case.classes) + len(case.pods)
        least = program.variable(most)
        classes = list(counted)
        domains = case.domains(spread.key)
        for name, nodes in domains.items():
            left, there = self._left(pods, nodes)
            total = {**self.here(nodes, classes), **left}
            program.at_most({least: 1, **{each: -count for each, count in total.items()}}, there)
            beyond = {**total, least: -1.0, self.in_domain(cls, spread.key, name): float(most)}
            program.at_most(beyond, spread.skew - there + most)
        self._none_on(cls, {node for nodes in domains.values() for node in nodes})

    def _forbidden(self) -> None:
        for key in sorted({pod.forbids for pod in self.case.pods} - {""}):
            pods = [one for one in self.groups if one.first.forbids == key]
            for cls in range(len(self.case.classes)):
                self._none_beside(cls, key, pods)

    def _domain(self) -> None:
        case, program = self.case, self.program
        if not case.domain:
            return
        chosen = []
        for nodes in case.domains(case.domain).values():
            chosen.append(program.variable())
            for node in nodes:
                program.at_most({self.used[node]: 1, chosen[-1]: -1}, 0)
        program.at_most(dict.fromkeys(chosen, 1.0), 1)
        labelled = {node for nodes in case.domains(case.domain).values() for node in nodes}
        for cls in range(len(case.classes)):
            self._none_on(cls, labelled)

    def _queues(self) -> None:
        case, program = self.case, self.program
        for name, queue in (case.queues or {}).items():
            for number in range(len(RESOURCES)):
                mine = [one for one in self.groups if one.first.queue == name]
                held = sum(one.first.size[number] * one.count for one in mine)
                freed: Counter[int] = Counter()
                for one in mine:
                    if one.gone is not None:
                        freed[one.gone] += one.first.size[number] * one.each
                most, least = queue.most[number], queue.least[number]
                if name != OWN_QUEUE and least:
                    program.at_most({each: float(size) for each, size in freed.items()}, max(0, held - least))
                if name == OWN_QUEUE and most is not None:
                    total = {
                        each: float(case.classes[cls].size[number]) for (cls, _), each in self.members.items()
                    }
                    total.update({each: -float(size) for each, size in freed.items()})
                    program.at_most(total, most - held)

    def _where_victims_are(self) -> None:
        """Ask for members on the nodes of victims that go alone; units go wherever their pods are."""
        for one in self.groups:
            if one.gone is not None and not one.whole:
                reasons = {self.used[one.first.node], *self._reasons(one)}
                self.program.at_most({one.gone: 1, **dict.fromkeys(reasons, -float(one.count))}, 0)

    def _reasons(self, one: Alike) -> set[int]:
        """Return what else lets pods go: that they keep members out of a domain in which there are some."""
        case = self.case
        found: set[int] = set()
        if not case.elsewhere:
            return found
        for cls, members in enumerate(case.classes):
            keys = {one.first.forbids, members.avoids if one.first.role == "blocker" else ""}
            if one.first.role == "mate" and (cls == 0 or members.apart_from_all):
                keys.add(members.apart)
            for key in keys & {ZONE, RACK}:
                domain = case.place(key, one.first.node)
                if domain:
                    inside = self.in_domain(cls, key, domain)
                    here = self.here(case.domains(key)[domain], [cls])
                    self.program.at_most({inside: 1, **dict.fromkeys(here, -1.0)}, 0)
                    found.add(inside)
        return found
