"""Random small clusters with a gang that fits nowhere, as the planner has them and as plain lists."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from makeway.core.k8s.affinity import Term
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.k8s.ports import HostPort
from makeway.core.k8s.selector import Requirement, Selector
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.planner.plan.constraints.pods import Constraints
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.snapshot.changes import KnowPodGroups, PutPod, PutPodGroup
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.signatures.table import PodSignature
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import ask, make_budget, make_node, make_pod, make_snapshot

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PRIORITY = 10
PORT = HostPort("10.0.0.1", "TCP", 80)
KINDS = ("plain", "classes", "ports", "domain", "apart")


@dataclass(frozen=True)
class Running:
    """A pod that is there. `budget`: 0 or 1 for none or one of two; `group`: empty, or of a group."""

    uid: str
    node: int
    size: int
    priority: int
    budget: str
    group: str
    port: bool


@dataclass(frozen=True)
class Members:
    """A class of members. `port`: takes the host port. `apart`: a key of domains with one of them each."""

    size: int
    count: int
    port: bool = False
    apart: str = ""


@dataclass(frozen=True)
class Case:
    """One cluster and one gang. `units`, `gangs`: groups that go whole, and minCount of the others."""

    sizes: tuple[int, ...]
    zones: tuple[str, ...]
    pods: tuple[Running, ...]
    budgets: dict[str, int]
    units: frozenset[str]
    gangs: dict[str, int]
    classes: tuple[Members, ...]
    must: int
    one_zone: bool


def random_case(seed: int) -> Case:
    """Make a case: at most 6 nodes, 30 pods and 6 members."""
    pick = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    nodes = pick.randint(2, 6)
    sizes = tuple(pick.choice([300, 400, 500, 600]) for _ in range(nodes))
    groups = ["", "", "", "", *pick.sample(["u0", "u1", "u2", "g0", "g1"], 3)]
    priority_of = {group: pick.choice([0, 0, 5]) for group in ("u0", "u1", "u2", "g0", "g1")}
    pods: list[Running] = []
    for node, size in enumerate(sizes):
        left = size - pick.choice([0, 0, 0, 50, 100])
        while left >= 50 and len(pods) < 30 and sum(one.node == node for one in pods) < 6:
            amount = min(pick.choice([50, 100, 100, 200, 300]), left)
            group = pick.choice(groups)
            port = kind == "ports" and pick.random() < 0.3
            port = port and not any(one.node == node and one.port for one in pods)
            own = pick.choice([0, 0, 0, 5, 5, PRIORITY])
            priority = priority_of[group] if group else own
            budget = pick.choice(["", "", "a", "b"])
            pods.append(Running(f"p{len(pods):02}", node, amount, priority, budget, group, port))
            left -= amount
    total = pick.randint(2, 6)
    first = Members(pick.choice([100, 150, 200, 300]), total)
    if kind == "classes" and total > 2:
        split = pick.randint(1, total - 1)
        classes = [replace(first, count=split), Members(pick.choice([50, 100, 250]), total - split)]
    else:
        classes = [first]
    if kind == "ports":
        classes[0] = replace(classes[0], port=True)
    if kind == "apart":
        classes[0] = replace(classes[0], apart=pick.choice([HOST, HOST, ZONE]))
    bound = {group: sum(one.group == group for one in pods) for group in ("g0", "g1")}
    return Case(
        sizes=sizes,
        zones=tuple(pick.choice("xy") for _ in sizes),
        pods=tuple(pods),
        budgets={name: pick.randrange(3) for name in "ab"},
        units=frozenset({"u0", "u1", "u2"}),
        gangs={group: pick.randint(1, max(1, count)) for group, count in bound.items()},
        classes=tuple(classes),
        must=total if pick.random() < 0.7 else pick.randint(1, total),
        one_zone=kind == "domain",
    )


def loaded(case: Case) -> tuple[Snapshot, GangQuestion]:
    """Return the case as the planner has it."""
    policy = Policy(limits=PolicyLimits(victims_per_order=1_000))
    budgets = [make_budget(name, {"app": name}, allowed) for name, allowed in case.budgets.items()]
    nodes = [
        msgspec.structs.replace(make_node(_name(node), size), labels={ZONE: zone, HOST: _name(node)})
        for node, (size, zone) in enumerate(zip(case.sizes, case.zones, strict=True))
    ]
    snapshot = make_snapshot(nodes, (), budgets, policy=policy)
    snapshot.apply(KnowPodGroups(True, True, True))
    priority = {one.group: one.priority for one in case.pods}
    for name in (*sorted(case.units), *case.gangs):
        record = GroupRecord(
            key=GroupKey("default", name),
            uid=name,
            whole=name in case.units,
            priority=priority.get(name, 0),
            min_count=case.gangs.get(name, 0),
        )
        snapshot.apply(PutPodGroup(record))
    for number, one in enumerate(case.pods):
        pod = make_pod(
            one.uid,
            _name(one.node),
            one.priority,
            one.size,
            start=number % 4,
            labels={"app": one.budget} if one.budget else {},
        )
        signature = msgspec.structs.replace(pod.signature, ports=(PORT,) if one.port else ())
        snapshot.apply(PutPod(msgspec.structs.replace(pod, group=one.group, signature=signature)))
    members = [_member(number, one) for number, one in enumerate(case.classes)]
    for pod, _ in members:
        snapshot.apply(PutPod(pod))
    questions = tuple(
        GangClass(replace(ask(pod), constraints=constraints), one.count)
        for (pod, constraints), one in zip(members, case.classes, strict=True)
    )
    topology = (ZONE,) if case.one_zone else ()
    return snapshot, GangQuestion("default/gang", questions, case.must, topology)


def _name(node: int) -> str:
    return f"n{node}"


def _member(number: int, members: Members) -> tuple[PodRecord, Constraints]:
    labels = {"member": f"m{number}"}
    selector = Selector((Requirement("member", "In", frozenset({f"m{number}"})),))
    apart = (Term(members.apart, frozenset({"default"}), None, selector),) if members.apart else ()
    ports = (PORT,) if members.port else ()
    pod = make_pod(f"m{number}", "", PRIORITY, members.size, labels=labels)
    signature = PodSignature(
        namespace="default", labels=tuple(sorted(labels.items())), ports=ports, anti_affinity=apart
    )
    constraints = Constraints(
        namespace="default",
        labels=tuple(sorted(labels.items())),
        ports=ports,
        has_affinity=True,
        anti_affinity=apart,
    )
    return msgspec.structs.replace(pod, signature=signature), constraints


def names(case: Case) -> Sequence[str]:
    """Return the nodes' names, by number."""
    return [_name(node) for node in range(len(case.sizes))]
