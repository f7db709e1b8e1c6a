"""One verdict of one pod: planner and evictor judge alike for pods, DaemonSets' pods and quotas."""

from dataclasses import dataclass
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.daemonset.rule import rules_for
from makeway.core.k8s.daemonset_owner import DaemonSetOwner
from makeway.core.k8s.objects import OwnerReference, Pod
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord, Membership
from makeway.core.k8s.selector import Selector
from makeway.core.policy.document import DaemonSets, Policy, Protection
from makeway.core.policy.facts import MIRROR, NEVER_EVICT
from makeway.core.policy.rules import PreemptorFacts
from makeway.evictor.judge import decide
from makeway.evictor.judge.groups import membership_of
from makeway.evictor.judge.verdicts import Delete
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    KnowDaemonSets,
    KnowPodGroups,
    PutDaemonSet,
    PutPod,
    PutPodGroup,
    PutPriorityClass,
)
from makeway.planner.snapshot.records import pod_record
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.evictor.building import make_order, make_victim
from unit.planner import manifests
from unit.planner.building import NOW, make_class
from unit.planner.caching import plan

PRIORITIES = st.sampled_from([-5, 0, 100, 1000, 2_000_000_000])
DAEMONS = DaemonSetOwner(namespace="default", name="logs", uid="logs-uid", selector=Selector(()))
CALM = make_class("calm", 150, 300)
OWNED = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="logs", uid="logs-uid", controller=True)
FORGED = msgspec.structs.replace(OWNED, uid="forged-uid")
SETTINGS = DaemonSets(enabled=True, namespaces=("*",), beyond_own_namespace=("*",))


@dataclass(frozen=True)
class Drawn:
    """A node's pods with their groups, and a policy."""

    pods: tuple[Pod, ...]
    groups: tuple[GroupRecord, ...]
    policy: Policy

    def snapshot(self) -> Snapshot:
        found = manifests.cluster(manifests.node("n1"))
        found.apply(Enforce(self.policy, "policy"))
        found.apply(PutPriorityClass(CALM))
        found.apply(PutDaemonSet(DAEMONS))
        found.apply(KnowDaemonSets(True))
        found.apply(KnowPodGroups(True, True, True))
        for group in self.groups:
            found.apply(PutPodGroup(group))
        for pod in self.pods:
            found.apply(PutPod(pod_record(pod)))
        return found

    def membership(self, pod: Pod) -> Membership:
        groups = {group.key: group for group in self.groups}
        return membership_of(pod, groups.get)

    def unit(self, pod: Pod) -> str:
        unit = self.membership(pod).unit
        return "" if unit is None else str(unit)

    def whole(self, deletable: set[str]) -> set[str]:
        """Leave out pods of units of which another may not go."""
        spared = {self.unit(pod) for pod in self.pods if pod.metadata.uid not in deletable} - {""}
        return {
            pod.metadata.uid
            for pod in self.pods
            if pod.metadata.uid in deletable and self.unit(pod) not in spared
        }


@st.composite
def a_pod(draw: st.DrawFn, number: int) -> Pod:
    group = draw(st.sampled_from(["", "", "all", "single", "parted", "missing"]))
    annotations = draw(st.sampled_from([{}, {}, {}, {NEVER_EVICT: "true"}, {MIRROR: "x"}]))
    owner = draw(st.sampled_from([None, None, None, OWNED, FORGED]))
    pod = manifests.pod(
        f"p{number}",
        "n1",
        priority=draw(PRIORITIES),
        priorityClassName=draw(st.sampled_from([None, None, "calm"])),
        schedulingGroup={"podGroupName": group} if group else None,
    )
    metadata = msgspec.structs.replace(
        pod.metadata, annotations=annotations, owner_references=() if owner is None else (owner,)
    )
    return msgspec.structs.replace(pod, metadata=metadata)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    def group(name: str, *, whole: bool, parent: str = "", composite: bool = False) -> GroupRecord:
        key = GroupKey("default", name, composite)
        return GroupRecord(key=key, uid=name, whole=whole, priority=draw(PRIORITIES), parent=parent)

    minimum = draw(st.sampled_from([None, None, 500]))
    return Drawn(
        pods=tuple(draw(a_pod(number)) for number in range(draw(st.integers(1, 6)))),
        groups=(
            group("all", whole=True),
            group("single", whole=False),
            group("parted", whole=False, parent="above"),
            group("above", whole=draw(st.booleans()), composite=True),
        ),
        policy=Policy(
            daemon_sets=SETTINGS if draw(st.booleans()) else DaemonSets(),
            protection=Protection(minimum_priority=minimum, never_evict_namespaces=("*",)),
        ),
    )


def asked(priority: int, *, of_daemonset: bool) -> Question:
    """A pod for which every pod that may go is listed, whatever its room."""
    preemptor = manifests.pod("preemptor", priority=priority)
    if of_daemonset:
        metadata = msgspec.structs.replace(preemptor.metadata, owner_references=(OWNED,))
        preemptor = msgspec.structs.replace(preemptor, metadata=metadata)
    return manifests.question(
        preemptor,
        ignore_columns=True,
        daemonset_node="n1" if of_daemonset else "",
        unfit_since=NOW - timedelta(hours=1),
    )


def judged(case: Drawn, priority: int, *, of_daemonset: bool) -> set[str]:
    """The pods that the evictor would delete for a pod of a priority."""
    preemptor = PreemptorFacts(priority, "default", "n1" if of_daemonset else "")
    found = set()
    for pod in case.pods:
        uid = pod.metadata.uid
        victim = make_victim(uid, uid=uid, node="n1", unit=case.unit(pod))
        where = "" if victim.unit else "n1"
        verdict = decide.judge(
            make_order(victim, node="n1"),
            victim,
            pod,
            preemptor=preemptor,
            rules=rules_for(preemptor, where, case.policy, {"calm": CALM}),
            now=NOW,
            daemonsets={("default", "logs"): DAEMONS},
            group=case.membership(pod),
        )
        if isinstance(verdict, Delete):
            found.add(uid)
    return case.whole(found)


def removable(case: Drawn, priority: int, *, of_daemonset: bool) -> tuple[set[str], bool]:
    """The pods that a plan lets go, and whether pods of units are among them."""
    found = plan(case.snapshot(), asked(priority, of_daemonset=of_daemonset), NOW)
    if not isinstance(found, Plan):
        return set(), False
    (candidate,) = found.unmodelled
    return {one.pod.uid for one in candidate.removable}, any(one.unit for one in candidate.removable)


@given(drawn(), PRIORITIES)
def test_the_evictor_deletes_for_a_pod_what_a_plan_lets_go(case: Drawn, priority: int) -> None:
    planned, _ = removable(case, priority, of_daemonset=False)

    assert planned == judged(case, priority, of_daemonset=False)


@given(drawn(), PRIORITIES)
def test_the_evictor_deletes_for_a_pod_of_a_daemonset_what_a_plan_lets_go(case: Drawn, priority: int) -> None:
    planned, units = removable(case, priority, of_daemonset=True)
    deletable = judged(case, priority, of_daemonset=True)

    assert planned <= deletable
    if case.policy.daemon_sets.enabled and not units:
        assert planned == {
            pod.metadata.uid for pod in case.pods if pod.metadata.uid in deletable and not case.unit(pod)
        }


@given(drawn())
def test_the_evictor_deletes_for_a_quota_what_a_plan_lets_go(case: Drawn) -> None:
    snapshot = case.snapshot()
    snapshot.apply(Adopt(tree(queue("default")), "queues"))
    _, members = snapshot.queues.without(())
    leaf = snapshot.queues.leaf_of("p0")

    deletable = set()
    for pod in case.pods:
        victim = make_victim(pod.metadata.name, uid=pod.metadata.uid, node="n1", unit=case.unit(pod))
        verdict = decide.judge_for_quota(
            victim,
            pod,
            case.policy.protection,
            lambda _: None,
            {("default", "logs"): DAEMONS},
            group=case.membership(pod),
        )
        if isinstance(verdict, Delete):
            deletable.add(pod.metadata.uid)

    assert {uid for unit in members(leaf) if not unit.exempt for uid in unit.uids} == case.whole(deletable)
    assert {uid for unit in members(leaf) for uid in unit.uids} == {pod.metadata.uid for pod in case.pods}
