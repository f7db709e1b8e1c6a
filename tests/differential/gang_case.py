"""A small cluster and a gang as plain values, and the same as the planner has it: read from manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from makeway.bus.messages import Placement
from makeway.core.k8s.objects import Node as NodeObject
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy.document import OBJECTIVE, Groups, GroupTerm, Policy, PolicyLimits
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.planner.plan.constraints.pods import constraints_of
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.snapshot.changes import Adopt, KnowPodGroups, PutNode, PutPod, PutPodGroup, RemovePod
from makeway.planner.snapshot.records import PodRecords, node_record
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import ask, make_budget, make_snapshot

HOST, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "example.com/rack"
RESOURCES: Final = ("cpu", "memory")
PRIORITY: Final = 10
"""Of the members. Pods of at least this priority stay."""

OWN_QUEUE: Final = "own"

Amounts = tuple[int, ...]
"""By resource, in the order of RESOURCES: milli-CPU, and MiB."""


@dataclass(frozen=True)
class Node:
    """A node. `rack`: empty where it has no such label."""

    zone: str
    rack: str
    room: Amounts


@dataclass(frozen=True)
class Running:
    """A pod that is there.

    `budget`, `group`, `queue`: names, empty for none. `role`: `blocker`, `friend`, `mate` (it has the labels
    of the first class of members) or empty. `forbids`: the key of the domains in which it wants no member.
    """

    uid: str
    node: int
    size: Amounts
    priority: int
    budget: str = ""
    group: str = ""
    port: bool = False
    role: str = ""
    forbids: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Spread:
    """A hard topology spread over pods of the class alone, or of `all_classes`, which then all ask for it."""

    key: str
    skew: int
    all_classes: bool = False


@dataclass(frozen=True)
class Members:
    """A class of members; rules are keys of the domains that they are about, empty for none.

    `apart`: no two of the class in a domain, nor one with another member where it is `apart_from_all`.
    `avoids`: no blockers in the domain. `near`: a friend is in it. `together`: another one of the class is in
    it. `nodes`: those that it can use; empty for all.
    """

    size: Amounts
    count: int
    port: bool = False
    apart: str = ""
    apart_from_all: bool = False
    avoids: str = ""
    near: str = ""
    together: str = ""
    spread: Spread | None = None
    nodes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Queue:
    """A queue below root. `most`, `least`: of each resource; None for no maximum, 0 for no guarantee."""

    most: tuple[int | None, ...]
    least: Amounts


@dataclass(frozen=True)
class Case:
    """One cluster and one gang.

    `units`: groups that go whole; `gangs`: minCount of the others. `domain`: the key of the group's topology
    constraint. `queues`: by name; the members are in `own`. `elsewhere`: victims may be on nodes without
    members where they keep a member out of a domain. `changes`: pods come and go while it is planned.
    `chunked`: the snapshot is updated a few pods at a time, as by a process that serves. `placed`: the node
    of a member that has one.
    """

    theme: str
    nodes: tuple[Node, ...]
    pods: tuple[Running, ...]
    classes: tuple[Members, ...]
    must: int
    budgets: Mapping[str, int]
    units: frozenset[str]
    gangs: Mapping[str, int]
    domain: str = ""
    queues: Mapping[str, Queue] | None = None
    elsewhere: bool = True
    changes: bool = False
    chunked: bool = False
    objective: tuple[GroupTerm, ...] = OBJECTIVE
    most_victims: int = 1_000
    placed: int | None = None

    def place(self, key: str, node: int) -> str:
        """Return the domain of a node; empty where it is in none."""
        one = self.nodes[node]
        return {HOST: f"n{node}", ZONE: one.zone, RACK: one.rack}[key]

    def domains(self, key: str) -> dict[str, list[int]]:
        """Return the nodes of each domain."""
        found: dict[str, list[int]] = {}
        for node in range(len(self.nodes)):
            if self.place(key, node):
                found.setdefault(self.place(key, node), []).append(node)
        return found


def labels_of(cls: int) -> dict[str, str]:
    """Return a member's labels: one of its class alone, whose key no other class has, and one of all."""
    return {"job": "gang", f"k{cls}": "in"}


_ROLES: Final[dict[str, dict[str, str]]] = {
    "": {},
    "blocker": {"role": "blocker"},
    "friend": {"role": "friend"},
    "mate": labels_of(0),
}


CHUNK: Final = 4
"""Pods of a chunk: fewer than most clusters have, so that updates are left for the pauses of a plan."""


def loaded(case: Case) -> tuple[Snapshot, GangQuestion]:
    """Return the case as the planner has it: every change after the other, all of the gang's pods in it."""
    limits = PolicyLimits(victims_per_order=case.most_victims)
    policy = Policy(limits=limits, groups=Groups(objective=case.objective))
    budgets = [make_budget(name, {"app": name}, allowed) for name, allowed in case.budgets.items()]
    snapshot = make_snapshot((), (), budgets, policy=policy, chunk=CHUNK if case.chunked else None)
    if case.queues is not None:
        snapshot.apply(
            Adopt(_tree(case.queues), "queues-1", ("ConfigMap", "makeway-system", "makeway-queues"))
        )
    snapshot.apply(KnowPodGroups(True, True, True))
    for group in _groups(case):
        snapshot.apply(PutPodGroup(group))
    for number, node in enumerate(case.nodes):
        snapshot.apply(PutNode(node_record(_node(number, node))))
    records = PodRecords()
    for number, one in enumerate(case.pods):
        snapshot.apply(PutPod(records.record(_running(number, one))))
    classes = []
    for number, members in enumerate(case.classes):
        pods = [_member(case, number, members, place) for place in range(members.count)]
        for pod in pods:
            snapshot.apply(PutPod(records.record(pod)))
        usable = [f"n{node}" for node in sorted(members.nodes)] if members.nodes else None
        question = ask(records.record(pods[0]), nodes=usable)
        classes.append(GangClass(replace(question, constraints=constraints_of(pods[0], ())), members.count))
    while snapshot.pending_updates.pending:
        snapshot.pending_updates.apply_chunk()
    snapshot.updates.serving = case.chunked
    topology = (case.domain,) if case.domain else ()
    placed = () if case.placed is None else (_placement(case.placed),)
    return snapshot, GangQuestion("default/gang", tuple(classes), case.must, topology, placed)


def _placement(node: int) -> Placement:
    return Placement(namespace="default", name="placed", uid="placed", node=f"n{node}")


def unimportant(turn: int) -> Callable[[Snapshot], None]:
    """Return a change that no plan for the gang depends on."""
    pod = _pod(f"other-{turn}", {"app": "other"}, (100, 100), 0)
    return lambda snapshot: snapshot.apply(PutPod(PodRecords().record(pod)))


def changed(case: Case) -> tuple[Case, Callable[[Snapshot], None]]:
    """Return the case after a change on which plans do depend, and the change itself.

    Of the pods without a group the first may go no more, and the last has ended.
    """
    single = [number for number, one in enumerate(case.pods) if not one.group]
    if len(single) < 2:
        return case, unimportant(0)
    first, last = single[0], single[-1]
    kept = replace(case.pods[first], priority=PRIORITY)
    pods = [kept if number == first else one for number, one in enumerate(case.pods) if number != last]

    def apply(snapshot: Snapshot) -> None:
        snapshot.apply(PutPod(PodRecords().record(_running(first, kept))))
        snapshot.apply(RemovePod(case.pods[last].uid))

    return replace(case, pods=tuple(pods)), apply


def _groups(case: Case) -> Iterator[GroupRecord]:
    priority = {one.group: one.priority for one in case.pods}
    for name in (*sorted(case.units), *sorted(case.gangs), "gang"):
        yield GroupRecord(
            key=GroupKey("default", name),
            uid=name,
            whole=name in case.units,
            priority=PRIORITY if name == "gang" else priority.get(name, 0),
            min_count=case.must if name == "gang" else case.gangs.get(name, 0),
        )


def _tree(queues: Mapping[str, Queue]) -> QueueTree:
    return QueueTree.of(
        QueueSpec(
            name="root",
            children=tuple(
                QueueSpec(
                    name=name,
                    maximum={
                        resource: _counted(resource, most)
                        for resource, most in zip(RESOURCES, one.most, strict=True)
                        if most is not None
                    },
                    guaranteed={
                        resource: _counted(resource, least)
                        for resource, least in zip(RESOURCES, one.least, strict=True)
                    },
                )
                for name, one in sorted(queues.items())
            ),
        )
    )


def _counted(resource: str, amount: int) -> int:
    return amount * 2**20 if resource == "memory" else amount


def _amounts(amounts: Amounts) -> dict[str, str]:
    cpu, memory = amounts
    return {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}


def _node(number: int, node: Node) -> NodeObject:
    name = f"n{number}"
    labels = {HOST: name, ZONE: node.zone, **({RACK: node.rack} if node.rack else {})}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": {**_amounts(node.room), "pods": "110"}},
        },
        NodeObject,
    )


def _pod(
    name: str,
    labels: Mapping[str, str],
    size: Amounts,
    priority: int,
    *,
    port: bool = False,
    group: str = "",
    start: int | None = None,
    **spec: Any,
) -> Pod:
    container: dict[str, Any] = {"name": "c", "resources": {"requests": _amounts(size)}}
    if port:
        container["ports"] = [{"containerPort": 80, "hostPort": 80}]
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    status = {} if start is None else {"startTime": f"2026-01-01T00:00:{start:02}Z"}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "namespace": "default", "labels": dict(labels)},
            "spec": {"containers": [container], "priority": priority, **spec},
            "status": status,
        },
        Pod,
    )


def _running(number: int, one: Running) -> Pod:
    labels = dict(_ROLES[one.role])
    if one.budget:
        labels["app"] = one.budget
    if one.queue:
        labels["queue"] = f"root.{one.queue}"
    affinity = _affinity(apart=[_term(one.forbids, {"job": "gang"})] if one.forbids else [])
    return _pod(
        one.uid,
        labels,
        one.size,
        one.priority,
        port=one.port,
        group=one.group,
        start=number % 4,
        nodeName=f"n{one.node}",
        affinity=affinity,
    )


def _member(case: Case, number: int, one: Members, place: int) -> Pod:
    labels = labels_of(number)
    own = {f"k{number}": "in"}
    if case.queues is not None:
        labels["queue"] = f"root.{OWN_QUEUE}"
    apart = [_term(one.apart, {"job": "gang"} if one.apart_from_all else own)] if one.apart else []
    apart += [_term(one.avoids, {"role": "blocker"})] if one.avoids else []
    near = [_term(one.near, {"role": "friend"})] if one.near else []
    near += [_term(one.together, own)] if one.together else []
    spread = one.spread
    spreads = [] if spread is None else [_constraint(spread, {"job": "gang"} if spread.all_classes else own)]
    return _pod(
        f"m{number}-{place}",
        labels,
        one.size,
        PRIORITY,
        port=one.port,
        group="gang",
        affinity=_affinity(apart=apart, near=near),
        topologySpreadConstraints=spreads,
    )


def _term(key: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": dict(labels)}}


def _affinity(*, apart: Sequence[dict[str, Any]] = (), near: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {
        **({"podAntiAffinity": {required: list(apart)}} if apart else {}),
        **({"podAffinity": {required: list(near)}} if near else {}),
    }


def _constraint(spread: Spread, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "topologyKey": spread.key,
        "maxSkew": spread.skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": dict(labels)},
    }
