"""Plans with groups on random clusters that change between them: what a planner remembers changes none."""

from __future__ import annotations

import random

import msgspec
import pytest

from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, Membership, membership
from makeway.core.policy.document import Groups, Policy, PolicyLimits, Protection
from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.planner import plan as plan_once
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import (
    KnowPodGroups,
    PutPod,
    PutPodGroup,
    RemovePod,
    RemovePodGroup,
)
from makeway.planner.snapshot.records import PodRecord
from unit.planner.building import NOW, ask, make_budget, make_node, make_pod, make_snapshot
from unit.planner.caching import plan

NODES = tuple(f"n{number}" for number in range(4))
GROUPS = ("", "", "g0", "g1", "g2", "g3")
NAMES = (
    *(GroupKey("default", f"g{n}") for n in range(4)),
    *(GroupKey("default", f"c{n}", True) for n in range(2)),
)
PREEMPTOR = make_pod("p", priority=10, size=300)


class Cluster:
    """A random cluster that changes, as the planner has it and as plain lists."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.random = random.Random(seed)
        self.pods: dict[str, PodRecord] = {}
        self.groups: dict[GroupKey, GroupRecord] = {}
        self.budgets = {"a": self.random.randrange(4), "b": self.random.randrange(4)}
        budgets = [make_budget(f"pdb-{app}", {"app": app}, allowed) for app, allowed in self.budgets.items()]
        self.snapshot = make_snapshot([make_node(name) for name in NODES], (), budgets, policy=policy)
        self.snapshot.apply(KnowPodGroups(True, True, True))
        for key in NAMES:
            self.put_group(key)
        for _ in range(14):
            self.put_pod()

    def put_group(self, key: GroupKey) -> None:
        pick = self.random
        record = GroupRecord(
            key=key,
            uid=f"{key.name}-{pick.randrange(100)}",
            parent=""
            if key.name == "c1"
            else pick.choice(["", "", "c0" if not key.composite else "c1", "c1"]),
            whole=pick.random() < 0.5,
            priority=pick.choice([0, 0, 5, 10]),
            min_count=pick.choice([0, 1, 2]),
        )
        self.groups[key] = record
        self.snapshot.apply(PutPodGroup(record))

    def put_pod(self) -> None:
        pick = self.random
        uid = f"u{pick.randrange(40):02}"
        app = pick.choice(["", "a", "b"])
        never = pick.random() < 0.05
        pod = make_pod(
            uid,
            pick.choice(NODES),
            pick.choice([0, 0, 5, 10]),
            pick.choice([50, 100, 200, 300]),
            start=pick.randrange(4),
            labels={"app": app} if app else {},
            facts=PodFacts(never_evict=never),
        )
        pod = msgspec.structs.replace(pod, group=pick.choice(GROUPS))
        self.pods[uid] = pod
        self.snapshot.apply(PutPod(pod))

    def change(self) -> None:
        pick = self.random.random()
        if pick < 0.5:
            self.put_pod()
        elif pick < 0.7 and self.pods:
            uid = self.random.choice(sorted(self.pods))
            del self.pods[uid]
            self.snapshot.apply(RemovePod(uid))
        elif pick < 0.8 and self.groups:
            key = self.random.choice(sorted(self.groups))
            del self.groups[key]
            self.snapshot.apply(RemovePodGroup(key))
        else:
            self.put_group(self.random.choice(NAMES))

    def member_of(self, pod: PodRecord) -> Membership:
        return membership(GroupKey("default", pod.group), self.groups.get) if pod.group else Membership()


POLICY = Policy(
    groups=Groups(surplus_first=True),
    limits=PolicyLimits(victims_per_order=1000),
    protection=Protection(never_evict_namespaces=("*",)),
)


@pytest.mark.parametrize("seed", range(40))
def test_what_was_planned_before_changes_no_plan_with_groups(seed: int) -> None:
    cluster = Cluster(seed, POLICY)
    for _ in range(12):
        pick = cluster.random
        in_flight = {uid: "o" for uid in sorted(cluster.pods) if pick.random() < 0.1}
        refused = {uid for uid in sorted(cluster.pods) if pick.random() < 0.05}
        asked = ask(PREEMPTOR, in_flight=in_flight, refused=refused)

        remembered = plan(cluster.snapshot, asked, NOW)

        assert remembered == plan_once(cluster.snapshot, asked, NOW)
        whole(cluster, remembered)
        cluster.change()


def whole(cluster: Cluster, found: Plan | PlanRefusal) -> None:
    """No candidate has a part of a unit."""
    for one in found.candidates if isinstance(found, Plan) else ():
        victims = {pod.pod.uid for pod in one.victims}
        for uid in victims:
            unit = cluster.member_of(cluster.pods[uid]).unit
            pods = [pod.uid for pod in cluster.pods.values() if unit and cluster.member_of(pod).unit == unit]
            assert set(pods) <= victims
