"""Builders of queue trees and of the pods in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from makeway.core.queues.amounts import Amounts
from makeway.core.queues.quota import QuotaPlan, planning_quota
from makeway.core.queues.tree import PreemptionPolicy, QueueSpec, QueueTree
from makeway.core.queues.usage import Usage
from makeway.core.queues.victims import run_to_end
from makeway.core.unit import GROUP_RANK, POD_RANK, Unit, whole


def queue(
    name: str,
    *children: QueueSpec,
    guaranteed: int | Amounts = 0,
    maximum: int | Amounts | None = None,
    delay_seconds: int = 1,
    miss: int = 100,
    namespaces: tuple[str, ...] | None = None,
    policy: PreemptionPolicy | None = None,
) -> QueueSpec:
    """A queue; plain numbers are memory."""
    return QueueSpec(
        name=name,
        guaranteed=_amounts(guaranteed),
        maximum={} if maximum is None else _amounts(maximum),
        delay=timedelta(seconds=delay_seconds),
        miss_percent=miss,
        namespaces=namespaces,
        preemption_policy=policy,
        children=children,
    )


def tree(
    *queues: QueueSpec, maximum: int | None = None, quota_preemption: bool = True, reclaim: bool = False
) -> QueueTree:
    """A tree of these queues under root."""
    root = queue("root", *queues, maximum=maximum)
    return QueueTree.of(root, quota_preemption=quota_preemption, reclaim=reclaim)


def _amounts(amounts: int | Amounts) -> Amounts:
    return {"memory": amounts} if isinstance(amounts, int) else amounts


@dataclass
class World:
    """A tree and its pods. Pods that are put in later are younger, unless told otherwise."""

    tree: QueueTree
    pods: dict[int, list[Unit]] = field(default_factory=dict)
    surplus: dict[str, int] = field(default_factory=dict)
    usage: Usage = field(init=False)

    def __post_init__(self) -> None:
        self.usage = Usage(self.tree)

    def run(
        self,
        path: str,
        *sizes: int | Amounts,
        uids: str = "",
        priority: int = 0,
        originator: bool = False,
        opted_out: bool = False,
        exempt: str = "",
        gang: str = "",
    ) -> World:
        """Put pods into a leaf, the oldest first. `uids`: with blanks between; else by number."""
        leaf = self.tree.at(path)
        members = self.pods.setdefault(leaf.number, [])
        names = uids.split()
        for place, size in enumerate(sizes):
            number = sum(map(len, self.pods.values()))
            member = Unit(
                uid=names[place] if names else f"{path}#{number:03}",
                requests=dict(_amounts(size)),
                priority=priority,
                originator=originator,
                opted_out=opted_out,
                created_micros=number,
                exempt=exempt,
                gang=gang,
                rank=GROUP_RANK if gang else POD_RANK,
                queue=leaf.number,
            )
            members.append(member)
            self.usage.add(leaf.number, member.requests)
        return self

    def together(
        self, name: str, *parts: tuple[str, int | Amounts], exempt: str = "", priority: int = 0, **sizes: int
    ) -> World:
        """Put pods that go whole into leaves. `parts`: by path; `sizes`: by the last part of it."""
        leaves = {leaf.path.rpartition(".")[2]: leaf.path for leaf in self.tree if leaf.is_leaf}
        number = sum(map(len, self.pods.values()))
        pods = [
            Unit(
                uid=f"{name}-{place}",
                requests=dict(_amounts(size)),
                priority=priority,
                created_micros=number,
                queue=self.tree.at(path).number,
            )
            for place, (path, size) in enumerate(
                [*parts, *((leaves[leaf], size) for leaf, size in sizes.items())]
            )
        ]
        unit = whole(name, pods, rank=GROUP_RANK, exempt=exempt, kept="")
        for pod in pods:
            self.usage.add(pod.queue, pod.requests)
        for leaf, _ in unit.amounts:
            self.pods.setdefault(leaf, []).append(unit)
        return self

    def enforce(self, path: str, running: frozenset[str] = frozenset()) -> QuotaPlan:
        """Enforce a queue's maximum."""
        steps = planning_quota(
            self.tree,
            self.usage,
            self.tree.at(path),
            lambda number: self.pods.get(number, ()),
            running=running,
            surplus=lambda gang: self.surplus.get(gang, 0),
        )
        return run_to_end(steps)


def sizes(plan: QuotaPlan) -> list[int]:
    """Memory of the victims, in the order of being taken."""
    return [member.requests["memory"] for member in plan.victims]


def uids(plan: QuotaPlan) -> list[str]:
    """UIDs of the victims, in the order of being taken."""
    return [member.uid for member in plan.victims]
