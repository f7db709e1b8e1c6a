"""Every change that is given unblocks the pod once it is made in the objects themselves."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from makeway.core.policy.document import Policy, PolicyLimits, Protection
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from makeway.core.queues.parsing import parse_queues
from makeway.core.queues.tree import QueueTree
from makeway.planner.offline.pending import asked_about, pending
from makeway.planner.offline.results import Change, Counterfactual, Pending
from makeway.planner.offline.world import World
from unit.planner.offline_building import NOW, Object, budget, node, pod, priority_class, world

QUEUES = """\
partitions:
- name: default
  queues:
  - name: root
    queues:
    - {name: ml, resources: {max: {vcore: "MAX"}}}
    - {name: web, resources: {guaranteed: {vcore: "LEAST"}}}
"""


@dataclass(frozen=True)
class Queues:
    """The maximum of one queue and the guarantee of the other."""

    maximum: str = "100"
    least: str = "0"

    def tree(self) -> QueueTree:
        text = QUEUES.replace("MAX", self.maximum).replace("LEAST", self.least)
        return parse_queues(text, "queues.yaml").tree


@dataclass
class Blocked:
    """A pod that is pending among objects, as a person could change them."""

    objects: list[Object]
    waiting: Object
    policy: Policy = field(default_factory=Policy)
    queues: Queues | None = None
    moment: Any = NOW

    def world(self) -> World:
        found = world(*self.objects, self.waiting)
        found.enforce(self.policy, "rev")
        found.adopt(self.queues.tree() if self.queues else None, "queues")
        return found

    def judged(self) -> Pending:
        there, raw = self.world(), msgspec.json.encode(self.waiting)
        return pending(there, raw, self.moment, *asked_about(there, raw, self.moment))

    def after(self, change: Change) -> Blocked:
        """Make one change in the objects, as its text says."""
        other = copy.deepcopy(self)
        objects = {(one["kind"], one["metadata"]["name"]): one for one in other.objects}
        spec = other.waiting["spec"]
        match change.kind:
            case "wait":
                other.moment = change.then
            case "priority":
                spec["priority"] = change.then
            case "preemption-policy":
                spec["preemptionPolicy"] = change.then
            case "request":
                amount = f"{change.then}m" if change.field == "requests.cpu" else str(change.then)
                spec["containers"][0]["resources"]["requests"][change.field.partition(".")[2]] = amount
            case "disruption-budget":
                name = change.object.rpartition("/")[2]
                objects["PodDisruptionBudget", name]["status"]["disruptionsAllowed"] = change.then
            case "uncordon":
                objects["Node", change.object.removeprefix("node ")]["spec"]["unschedulable"] = False
            case "node":
                new = copy.deepcopy(objects["Node", change.then])
                new["metadata"] |= {"name": "new", "uid": "new"}
                new["metadata"]["labels"]["kubernetes.io/hostname"] = "new"
                new["spec"].pop("unschedulable", None)
                other.objects.append(new)
            case "queue-max":
                other.queues = replace(other.queues or Queues(), maximum=f"{change.then}m")
        return other


def waiting(cpu: str = "1", priority: int = 0, **more: Any) -> Object:
    asks = pod("asks", cpu=cpu, priority=priority, status={"phase": "Pending"}, **more)
    asks["spec"]["schedulerName"] = "s"
    return asks


def unblocking(case: Blocked) -> list[Counterfactual]:
    """Return the counterfactuals, after each has been made in the objects and found to help as it says."""
    found = case.judged()
    if found.answer.result != "refused":
        assert found.unblocked_by == ()
        return []
    for one in found.unblocked_by:
        then = case.after(one.change).judged().answer
        assert then.result != "refused", (one, then.diagnosis)
        assert {victim.uid for victim in then.victims} == {victim.uid for victim in one.victims}
    return list(found.unblocked_by)


def texts(case: Blocked) -> list[str]:
    return [one.change.text for one in unblocking(case)]


WEB = {"app": "web"}


def test_a_priority_just_above_the_cheapest_pods_is_enough() -> None:
    case = Blocked(
        [node("a"), pod("p", "a", cpu="2", priority=10), pod("q", "a", cpu="2", priority=20)], waiting("2")
    )

    assert texts(case) == ["priority ≥ 11 (it has 0)", "one more node like a (cpu 4, memory 8Gi)"]


def test_a_hard_budget_needs_as_many_disruptions_as_there_are_victims() -> None:
    pods = [pod(f"p{n}", "a", labels=WEB, priority=0) for n in range(4)]
    case = Blocked(
        [node("a"), *pods, budget("web", WEB, 0)],
        waiting("2", 9),
        Policy(disruption_budgets="hard", hard_budget_namespaces=("*",)),
    )

    assert texts(case)[0] == "PDB default/web: 2 more disruptions (it allows 0)"


def test_a_queue_at_its_maximum_needs_as_much_more_as_is_missing() -> None:
    queued = {"queue": "root.ml"}
    case = Blocked(
        [node("a", "8"), pod("p", "a", cpu="3", labels=queued, priority=5)],
        waiting("4", 5, labels=queued),
        queues=Queues(maximum="3"),
    )

    assert texts(case)[0] == "queue root.ml: max +4 cpu (it is 3)"


def test_a_toleration_ends_by_itself_and_by_a_higher_priority() -> None:
    annotations = {
        "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority": "100",
        "preemption-toleration.scheduling.x-k8s.io/toleration-seconds": "3600",
    }
    lenient = priority_class("lenient", 1)
    lenient["metadata"]["annotations"] = annotations
    scheduled = {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T11:30:00Z"}
        ]
    }
    held = pod("p", "a", cpu="4", priority=1, priorityClassName="lenient", status=scheduled)
    case = Blocked([node("a"), lenient, held], waiting("4", 9))

    assert texts(case)[:2] == ["wait until 2026-01-01T12:30:00Z", "priority ≥ 100 (it has 9)"]


def test_a_pod_too_large_for_every_node_is_told_how_large_it_may_be() -> None:
    case = Blocked([node("a"), node("b", "8"), pod("p", "a", priority=0)], waiting("9", 5))

    assert texts(case) == ["a request of at most cpu 8 (it asks for 9)"]


def test_a_pod_that_the_nominator_preempts_for_is_not_told_to_preempt_by_itself() -> None:
    opted_in = priority_class("urgent", 5, preemptionPolicy="Never")
    opted_in["metadata"]["annotations"] = {ANNOTATION: EXTERNAL}
    lower = pod("p", "a", cpu="4", priority=1)
    asking = waiting("4", 5, preemptionPolicy="Never", priorityClassName="urgent")

    (victim,) = Blocked([node("a"), lower, opted_in], asking).judged().answer.victims

    assert victim.name == "p"
    stronger = {**lower, "spec": {**lower["spec"], "priority": 50}}
    for told in texts(Blocked([node("a"), stronger, opted_in], asking)):
        assert "preemptionPolicy" not in told


def test_a_member_whose_group_may_not_preempt_is_told_of_the_groups_own_policy() -> None:
    def told(of_group: str | None, of_pod: str) -> list[Change]:
        group = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "default", "uid": "G"},
            "spec": {"preemptionPolicy": of_group, "priority": 5},
        }
        member = waiting("4", 5, schedulingGroup={"podGroupName": "train"}, preemptionPolicy=of_pod)
        found = Blocked([node("a"), pod("p", "a", cpu="4", priority=1), group], member).judged()
        return [unblocked.change for unblocked in found.unblocked_by]

    assert told("Never", "PreemptLowerPriority")[0].object == "PodGroup default/train"
    assert told(None, "Never")[0].object == "pod"
    assert "preemption-policy" not in {one.kind for one in told("PreemptLowerPriority", "Never")}


def test_a_cordon_is_told() -> None:
    case = Blocked([node("a", unschedulable=True)], waiting())

    assert texts(case)[0] == "uncordon node a"


def test_nothing_is_told_of_a_pod_that_fits_or_may_preempt() -> None:
    assert unblocking(Blocked([node("a")], waiting())) == []
    assert unblocking(Blocked([node("a"), pod("p", "a", cpu="4", priority=0)], waiting(priority=9))) == []


@settings(max_examples=int(0.5 * settings().max_examples))
@given(st.data())
def test_every_counterfactual_unblocks_the_pod_once_it_is_made(data: st.DataObject) -> None:
    draw = data.draw
    objects: list[Object] = [
        node(name, str(draw(st.integers(1, 4))), unschedulable=draw(st.booleans())) for name in ("a", "b")
    ]
    queued = st.sampled_from([{"queue": "root.ml"}, {"queue": "root.web"}])
    objects += [
        pod(
            f"p{number}",
            draw(st.sampled_from("ab")),
            cpu=str(draw(st.integers(1, 2))),
            priority=draw(st.integers(0, 4)),
            labels={
                **draw(st.sampled_from([{}, WEB])),
                "queue": draw(st.sampled_from(["root.ml", "root.web"])),
            },
            annotations=draw(st.sampled_from([{}, {"makeway.dev/never-evict": "true"}])),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    objects.append(budget("web", WEB, draw(st.integers(0, 1))))
    case = Blocked(
        objects,
        waiting(
            str(draw(st.integers(1, 4))),
            draw(st.integers(0, 4)),
            labels=draw(queued),
            **draw(st.sampled_from([{}, {"preemptionPolicy": "Never"}])),
        ),
        Policy(
            disruption_budgets=draw(st.sampled_from(["soft", "hard"])),
            hard_budget_namespaces=("*",),
            protection=Protection(
                minimum_priority=draw(st.sampled_from([None, 2])),
                never_evict_namespaces=draw(st.sampled_from([(), ("*",)])),
            ),
            limits=PolicyLimits(victims_per_order=draw(st.sampled_from([100, 1]))),
        ),
        Queues(str(draw(st.integers(1, 6))), str(draw(st.integers(0, 3)))) if draw(st.booleans()) else None,
    )
    for one in unblocking(case):
        if one.change.kind == "priority":
            less = msgspec.structs.replace(one.change, then=one.change.then - 1)
            assert case.after(less).judged().answer.result == "refused"
