"""Rules of who may preempt whom in plans: what changes them, and what a refusal says of them.

That plans, evictor and simulate heed drawn rules alike is in tests/pairs.
"""

from datetime import timedelta

import msgspec
import pytest

from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.pod_groups import GroupKey
from makeway.core.policy.document import Policy
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.preemption import NAMESPACE_NAME, Labels, PartySelector, Preemption, PreemptionRule
from makeway.core.queues.tree import QueueTree
from makeway.planner.commit.removable import removable_pods
from makeway.planner.plan.gang.planner import plan_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion, alike
from makeway.planner.plan.result import GangPlan, Plan, PlanRefusal
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    KnowPodGroups,
    PutNamespace,
    PutPod,
    PutPodGroup,
    RemoveNamespace,
)
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a
from unit.core.queue_building import queue, tree
from unit.planner import manifests
from unit.planner.building import HIGH, LOW, NOW, ask, make_class, make_pod, make_snapshot, refused, scheduled
from unit.planner.caching import plan
from unit.planner.grouping import pod_group

SOURCE = ("ConfigMap", "makeway-system", "makeway-policy")
URGENT = make_pod("P", priority=HIGH, size=200)


def labelled(**labels: str) -> Labels:
    return Labels(match_labels=labels)


def rule(name: str = "r", **more: object) -> PreemptionRule:
    return PreemptionRule(name=name, **{"action": "deny", **more})  # type: ignore[arg-type]


def policy(*rules: PreemptionRule) -> Policy:
    return Policy(preemption=Preemption(rules=rules))


def enforce(snapshot: Snapshot, *rules: PreemptionRule) -> None:
    snapshot.apply(Enforce(policy(*rules), f"rev-{snapshot.revision}", SOURCE))


def goes(snapshot: Snapshot, preemptor: PodRecord = URGENT) -> bool:
    """Plan as one that has planned on the snapshot before, and afresh; both say the same."""
    found = plan(snapshot, ask(preemptor), NOW)
    again = plan(snapshot, ask(preemptor), NOW)
    assert isinstance(found, Plan) == isinstance(again, Plan)
    return isinstance(found, Plan)


QUEUES: QueueTree = tree(queue("team", queue("a")), queue("default"))


def in_queue(path: str) -> PodRecord:
    return full(labels={"queue": path}, facts=PodFacts(queue=path))


def full(**more: object) -> PodRecord:
    return make_pod("x", "a", LOW, 500, **more)  # type: ignore[arg-type]


def test_a_policy_that_denies_what_the_same_rule_allowed_is_heeded_by_the_next_plan() -> None:
    snapshot = make_snapshot(["a"], [full(labels={"tier": "gold"})])
    gold = PartySelector(label_selector=labelled(tier="gold"))

    enforce(snapshot, rule(victims=gold, action="allow"), rule("all"))
    assert goes(snapshot)
    enforce(snapshot, rule(victims=gold), rule("all"))
    assert not goes(snapshot)
    enforce(snapshot)
    assert goes(snapshot)


def test_a_label_that_a_pod_gets_later_is_heeded() -> None:
    snapshot = make_snapshot(["a"], [full()])
    enforce(snapshot, rule(victims=PartySelector(label_selector=labelled(tier="gold"))))
    assert goes(snapshot)

    snapshot.apply(PutPod(full(labels={"tier": "gold"})))

    assert not goes(snapshot)


def test_labels_of_namespaces_are_heeded_as_they_come_and_go() -> None:
    snapshot = make_snapshot(["a"], [full()])
    enforce(snapshot, rule(victims=PartySelector(namespace_selector=labelled(env="prod"))))
    assert goes(snapshot)

    snapshot.apply(PutNamespace(manifests.namespace("default", {"env": "prod"})))
    assert not goes(snapshot)
    snapshot.apply(RemoveNamespace("default"))
    assert goes(snapshot)


def test_a_namespace_has_its_name_as_a_label_also_before_it_is_seen() -> None:
    snapshot = make_snapshot(["a"], [full()])
    named = labelled(**{"kubernetes.io/metadata.name": "default"})

    enforce(snapshot, rule(victims=PartySelector(namespace_selector=named)))

    assert not goes(snapshot)


@pytest.mark.parametrize(("name", "keeps"), [("root.team", True), ("root.team.a", True), ("root.te", False)])
def test_queues_are_heeded_once_they_are_adopted(name: str, keeps: bool) -> None:
    snapshot = make_snapshot(["a"], [in_queue("root.team.a")])
    enforce(snapshot, rule(victims=PartySelector(queues=(name,))))
    assert goes(snapshot)

    snapshot.apply(Adopt(QUEUES, "queues"))

    assert goes(snapshot) != keeps


def test_the_queue_of_a_victim_is_the_one_that_its_label_names_now_as_the_evictor_reads_it() -> None:
    snapshot = make_snapshot(["a"], [in_queue("root.default")])
    snapshot.apply(Adopt(QUEUES, "queues"))
    enforce(snapshot, rule(victims=PartySelector(queues=("root.team",))))
    assert goes(snapshot)

    snapshot.apply(PutPod(in_queue("root.team.a")))

    assert not goes(snapshot)
    assert snapshot.queues.path_of(snapshot.pods["x"]) == "root.default", "it is charged where it was placed"


def test_a_refusal_by_queues_depends_on_them_and_one_by_namespaces_is_asked_again() -> None:
    source = ("ConfigMap", "makeway-system", "makeway-queues")
    snapshot = make_snapshot(["a"], [in_queue("root.team.a")])
    snapshot.apply(Adopt(QUEUES, "queues", source))

    enforce(snapshot, rule(victims=PartySelector(queues=("root.team",))))
    found = refused(snapshot, ask(URGENT))
    assert (set(found.depends_on), found.retry_at) == ({SOURCE, source}, None)

    enforce(snapshot, rule(victims=PartySelector(namespace_selector=labelled(**{NAMESPACE_NAME: "default"}))))
    found = refused(snapshot, ask(URGENT))
    assert (found.depends_on, found.retry_at) == ((SOURCE,), NOW + timedelta(minutes=1))


def test_a_refusal_says_of_which_rules_the_first_end_is() -> None:
    steady = make_pod("y", "a", LOW, 200, facts=scheduled(40, "steady"))
    young = make_pod("x", "a", LOW, 300, start_micros=microseconds(NOW - timedelta(seconds=50)))
    classes = [make_class("steady", HIGH + 1, 100)]
    snapshot = make_snapshot(["a"], [young, steady], classes=classes)
    enforce(snapshot, rule("young", action="allow", minimum_run_time=timedelta(seconds=60)))

    spared = "1 pod exempt by preemption-rule, 1 pod exempt by preemption-toleration"
    assert f"{spared}, the first of both until 2026-01-01T12:00:09Z" in refused(snapshot, ask(URGENT)).message


def test_a_victim_goes_once_it_has_run_long_enough_and_the_refusal_says_when() -> None:
    started = microseconds(NOW - timedelta(seconds=50))
    snapshot = make_snapshot(["a"], [full(start_micros=started)])
    enforce(snapshot, rule("young", action="allow", minimum_run_time=timedelta(seconds=60)))

    found = refused(snapshot, ask(URGENT))
    assert found.exempt == {"preemption-rule": 1}
    assert SOURCE in found.depends_on
    assert "1 pod exempt by preemption-rule" in found.message
    (near,) = found.nearest
    (exempt,) = near.exempt.pods
    assert exempt.verdict.until == NOW + timedelta(seconds=10) - timedelta(microseconds=1)
    assert exempt.verdict.detail.startswith(
        "rule young of preemption.rules allows it after 60 s, and the pod"
    )

    as_a(Plan, plan(snapshot, ask(URGENT), NOW + timedelta(seconds=10)))
    as_a(PlanRefusal, plan(snapshot, ask(URGENT), NOW + timedelta(seconds=9)))


def test_a_victim_that_has_not_started_has_not_run_long_enough() -> None:
    snapshot = make_snapshot(["a"], [full(start_micros=microseconds(None))])
    enforce(snapshot, rule(action="allow", minimum_run_time=timedelta(seconds=60)))

    assert not goes(snapshot)
    assert not goes(snapshot, make_pod("Q", priority=HIGH, size=100))


def test_preemptors_that_rules_tell_apart_share_no_scores() -> None:
    snapshot = make_snapshot(["a"], [full()])
    enforce(snapshot, rule(preemptors=PartySelector(label_selector=labelled(tier="low"))))

    low = make_pod("Q", priority=HIGH, size=200, labels={"tier": "low"})
    assert [goes(snapshot, one) for one in (URGENT, low, URGENT, low)] == [True, False, True, False]


def test_a_unit_stays_where_a_rule_keeps_a_pod_of_it_on_another_node() -> None:
    pods = [make_pod("x", "a", size=500, group="g"), make_pod("y", "b", labels={"tier": "gold"}, group="g")]
    snapshot = make_snapshot(["a", "b"], pods, groups=[pod_group("g")])
    whole = make_pod("Q", priority=HIGH, size=500)
    assert goes(snapshot, whole)

    enforce(snapshot, rule(victims=PartySelector(label_selector=labelled(tier="gold"))))

    assert not goes(snapshot, whole)
    assert removable_pods(snapshot, ask(whole), pods, NOW) == {}


def test_a_group_preempts_with_the_labels_of_the_group_and_the_class_of_each_member() -> None:
    snapshot = make_snapshot(["a", "b"], [full(), make_pod("y", "b", LOW, 500)])
    snapshot.apply(KnowPodGroups(True, True, True))
    one = make_pod("m", "", HIGH, 300, labels={"tier": "gold"})
    other = make_pod("n", "", HIGH, 300, facts=PodFacts(priority_class="batch"))
    for pod in (one, other):
        snapshot.apply(PutPod(pod))
    assert alike(ask(one), set()) != alike(ask(other), set())
    asked = GangQuestion("default/gang", (GangClass(ask(one), 1), GangClass(ask(other), 1)), 2)
    wanted = pod_group("gang", whole=False, priority=HIGH)

    def planned(**labels: str) -> bool:
        snapshot.apply(PutPodGroup(msgspec.structs.replace(wanted, labels=labels)))
        found = isinstance(plan_gang(snapshot, asked, NOW), GangPlan)
        key = GroupKey("default", "gang")
        judged = removable_pods(
            snapshot, ask(one), [snapshot.pods["x"]], NOW, members=(one, other), preempting=key
        )
        assert (judged != {}) == found
        return found

    enforce(snapshot, rule(preemptors=PartySelector(label_selector=labelled(tier="gold"))))
    assert [planned(), planned(tier="gold")] == [True, False]
    enforce(snapshot, rule(preemptors=PartySelector(priority_classes=("batch",))))
    assert not planned()


def test_rules_without_preemptors_keep_pods_from_quotas_and_a_run_time_does_not() -> None:
    snapshot = make_snapshot(["a"], [full()])
    snapshot.apply(Adopt(tree(queue("default")), "queues"))

    def exempt() -> str:
        _, members = snapshot.queues.without(())
        (unit,) = members(snapshot.queues.leaf_of("x"))
        return unit.exempt

    enforce(snapshot, rule())
    assert exempt() == "preemption-rule"
    enforce(snapshot, rule(preemptors=PartySelector(priority_classes=("batch",))))
    assert exempt() == ""
    enforce(snapshot, rule(action="allow", minimum_run_time=timedelta(days=3650)))
    assert exempt() == ""
