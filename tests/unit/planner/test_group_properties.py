"""Plans with groups as kube-scheduler 1.37 makes them, one node and one pod at a time, on random clusters.

The slow way is SelectVictimsOnNode and pickOneNodeForPreemption in plain Python. Between plans the cluster
changes, so that what a planner remembers is compared as well.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from makeway.core.k8s.importance import NOT_STARTED
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, Membership, membership
from makeway.core.policy.document import Groups, Policy, PolicyLimits, Protection
from makeway.core.policy.facts import PodFacts
from makeway.planner.plan.planner import plan as plan_once
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot.changes import KnowPodGroups, PutPod, PutPodGroup, RemovePod, RemovePodGroup
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


@dataclass
class Victim:
    """What goes together in the reference."""

    pods: list[PodRecord]
    priority: int
    rank: int

    @property
    def order(self) -> tuple[object, ...]:
        start = min(pod.start_micros for pod in self.pods)
        return -self.priority, -self.rank, -len(self.pods), start, min(pod.uid for pod in self.pods)


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
            group=pick.choice(GROUPS),
        )
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

    # --------------------------------------------------------------------------- the slow way

    def member_of(self, pod: PodRecord) -> Membership:
        return membership(GroupKey("default", pod.group), self.groups.get) if pod.group else Membership()

    def answer(self) -> list[tuple[tuple[object, ...], str, frozenset[str]]]:
        found = []
        for node in NODES:
            chosen = self.on_node(node)
            if chosen is not None:
                found.append(chosen)
        return sorted(found)

    def victims_on(self, node: str) -> list[Victim]:
        seen: set[GroupKey] = set()
        found = []
        for pod in sorted(self.pods.values(), key=lambda one: one.uid):
            if pod.node != node:
                continue
            member = self.member_of(pod)
            if member.unknown:
                continue
            priority = pod.priority if member.priority is None else member.priority
            if member.unit is None:
                found.append(Victim([pod], priority, 2 if pod.group else 1))
            elif member.unit not in seen:
                seen.add(member.unit)
                pods = [one for one in self.pods.values() if self.member_of(one).unit == member.unit]
                found.append(Victim(pods, priority, 3 if member.unit.composite else 2))
        return [
            one for one in found if one.priority < 10 and not any(pod.facts.never_evict for pod in one.pods)
        ]

    def on_node(self, node: str) -> tuple[tuple[object, ...], str, frozenset[str]] | None:
        here = [pod for pod in self.pods.values() if pod.node == node]
        candidates = sorted(self.victims_on(node), key=lambda one: one.order)
        removed = {pod.uid for one in candidates for pod in one.pods}

        def room(gone: Iterable[str]) -> bool:
            without = set(gone)
            return 500 - sum(pod.requests["cpu"] for pod in here if pod.uid not in without) >= 300

        if room(()) or not candidates or not room(removed):
            return None
        left = dict(self.budgets)
        violating: list[tuple[Victim, int]] = []
        others: list[tuple[Victim, int]] = []
        for one in candidates:
            bad = 0
            for pod in one.pods:
                app = pod.labels.get("app")
                if app:
                    left[app] -= 1
                    bad += left[app] < 0
            (violating if bad else others).append((one, bad))
        gone = set(removed)
        victims: list[Victim] = []
        violations = 0
        for one, bad in (*violating, *others):
            back = gone - {pod.uid for pod in one.pods}
            if room(back):
                gone = back
            else:
                victims.append(one)
                violations += bad
        pods = [(pod, one.priority) for one in victims for pod in one.pods]
        highest = max(priority for _, priority in pods)
        starts = [pod.start_micros for pod, priority in pods if priority == highest]
        assert max(starts) < NOT_STARTED
        key = (
            violations,
            highest,
            sum(priority + 2**31 for _, priority in pods),
            len(pods),
            -min(starts),
            node,
        )
        return key, node, frozenset(pod.uid for pod, _ in pods)


def chosen(found: Plan | PlanRefusal) -> list[tuple[str, frozenset[str]]]:
    if isinstance(found, PlanRefusal):
        return []
    return [(one.node, frozenset(pod.pod.uid for pod in one.victims)) for one in found.candidates]


def policy(*, surplus_first: bool) -> Policy:
    return Policy(
        groups=Groups(surplus_first=surplus_first),
        limits=PolicyLimits(victims_per_order=1000),
        protection=Protection(never_evict_namespaces=("*",)),
    )


@pytest.mark.parametrize("seed", range(60))
def test_plans_with_groups_are_kube_schedulers(seed: int) -> None:
    cluster = Cluster(seed, policy(surplus_first=False))
    for _ in range(12):
        expected = [(node, victims) for _, node, victims in cluster.answer()]

        assert chosen(plan(cluster.snapshot, ask(PREEMPTOR), NOW)) == expected
        cluster.change()


@pytest.mark.parametrize("seed", range(40))
def test_what_was_planned_before_changes_no_plan_with_groups(seed: int) -> None:
    cluster = Cluster(seed, policy(surplus_first=True))
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
