"""What `makeway why` says of a pending pod whose last order made no room."""

from typing import Any, cast

import msgspec
import pytest
import typer
from msgspec.structs import replace

from builders_bus import make_victim
from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome, Preemptor, VictimOutcome
from makeway.cli.history.story import Story
from makeway.cli.why.command import _lines, _object
from makeway.cli.why.explanation import Explanation, _leaving, delayed, unplanned
from makeway.cli.why.text import of_order, preempted, served_by_another, waiting
from makeway.core.k8s.objects import Metadata, Pod, PodCondition, PodSpec, PodStatus
from makeway.dev.samples import MESSAGES
from makeway.planner.offline.results import Pending, SimulatedPod
from makeway.runtime.kube import Api
from narrowing import as_a, there

FORBIDDEN = '403 Forbidden: pods "cache-0" is forbidden: this pod may not be deleted'

refused = SimulatedPod(
    namespace="shop",
    name="checkout",
    result="refused",
    preemptor=Preemptor(namespace="shop", name="checkout", uid="p", priority=1000, scheduler_name="s"),
    queue="",
    mode="enforce",
    node=None,
    nominated_node=None,
    victims=(),
    pdb_violations=0,
    candidates=as_a(DecisionRecord, MESSAGES["decision.full"]).candidates[:1],
    candidates_total=1,
    diagnosis=None,
    spared_by_rule={},
    nearest=(),
    nodes_total=1,
    nodes_fitting=0,
    nodes_potential=1,
    nodes_excluded={},
    warnings=(),
)


def pending_lines(found: Pending, story: Story | None = None, **known: Any) -> list[str]:
    made_room = () if story is None else (story,)
    return list(waiting(Explanation(state="pending", made_room=made_room, **known), found))


def said(result: str, *victims: VictimOutcome) -> str:
    order, outcome = MESSAGES["order.full"], MESSAGES["outcome.full"]
    assert isinstance(order, EvictionOrder)
    assert isinstance(outcome, Outcome)
    outcome = replace(outcome, result=result, reason="delete-refused", message="", victims=victims)
    story = Story(order=order, outcome=outcome, decision=None)
    return "\n".join(pending_lines(Pending(answer=refused, unblocked_by=()), story))


def test_a_victim_that_could_not_be_evicted_is_named_with_the_cause() -> None:
    victim = VictimOutcome(
        namespace="shop", name="cache-0", uid="c", result="failed", reason="Forbidden", message=FORBIDDEN
    )
    kept = VictimOutcome(namespace="shop", name="cache-1", uid="d", result="notAttempted")

    text = said("failed", victim, kept)

    assert "last order: ord-" in text
    assert "delete-refused" in text
    assert f"shop/cache-0 failed, and left out for a while: {FORBIDDEN}" in text
    assert "cache-1" not in text


def test_a_victim_that_a_rule_keeps_is_told_as_exempt() -> None:
    victim = VictimOutcome(namespace="shop", name="cache-0", uid="c", result="spared", reason="never-evict")

    text = said("failed", victim)

    assert "shop/cache-0 exempt, and left out for a while: never-evict" in text


def test_while_evicted_pods_are_leaving_the_order_is_told_and_no_other_plan() -> None:
    order, outcome = MESSAGES["order.full"], MESSAGES["outcome.full"]
    assert isinstance(order, EvictionOrder)
    story = Story(order=order, outcome=replace(as_a(Outcome, outcome), result="succeeded"), decision=None)

    lines = pending_lines(Pending(answer=refused, unblocked_by=()), story, leaving=1)

    assert lines[0].endswith(f"is pending: 1 evicted pod has to leave {order.node} first")
    assert lines[1].startswith(f"order {order.order_id}")
    assert "planned" not in "".join(lines[2:])


def test_a_pod_that_was_never_decided_about_says_who_may_not_have_answered() -> None:
    found = Pending(answer=replace(refused, result="preempts", nominated_node="n1"), unblocked_by=())
    undecided = (
        "  nothing was decided about it: makeway was not asked, or no planner answers (`makeway check`)"
    )

    assert undecided in pending_lines(found)
    for what in ("unplanned", "delayed", "group"):
        assert undecided not in pending_lines(found, None, **{what: "told"})
    record = as_a(DecisionRecord, MESSAGES["decision.full"])
    assert undecided not in pending_lines(found, last_decision=record)


def test_the_order_for_its_group_names_no_node_where_a_pod_is_pending() -> None:
    order, outcome = as_a(EvictionOrder, MESSAGES["order.group"]), as_a(Outcome, MESSAGES["outcome.group"])
    found = Pending(answer=refused, unblocked_by=())
    made = Story(order=order, outcome=replace(outcome, result="succeeded"), decision=None)
    failed = Story(order=order, outcome=outcome, decision=None)

    leaving, in_vain = pending_lines(found, made, leaving=2), "\n".join(pending_lines(found, failed))

    assert leaving[0].endswith("is pending: 2 evicted pods have to leave for its group first")
    assert f"  last order: {outcome.order_id} for its group, failed " in in_vain


async def test_victims_of_the_order_for_its_group_are_looked_for_where_a_pod_is_nominated_by_it() -> None:
    order, outcome = as_a(EvictionOrder, MESSAGES["order.group"]), as_a(Outcome, MESSAGES["outcome.group"])
    story = Story(order=order, outcome=replace(outcome, result="succeeded"), decision=None)
    uids = {f"/api/v1/namespaces/{one.namespace}/pods/{one.name}": one.uid for one in order.victims}

    class Reader:
        async def request(self, method: str, path: str) -> bytes:
            return msgspec.json.encode({"metadata": {"uid": uids[path]}, "spec": {}})

    member = order.members[0]

    def nominated(to: str) -> Pod:
        metadata = Metadata(namespace=member.namespace, name=member.name, uid=member.uid)
        return Pod(metadata=metadata, spec=PodSpec(), status=PodStatus(nominated_node_name=to))

    api = cast("Api", Reader())
    assert await _leaving(api, nominated(member.node), story) == len(order.victims)
    assert await _leaving(api, nominated("elsewhere"), story) == 0


def test_what_holds_the_order_of_a_pod_is_told_with_its_end() -> None:
    held = PodCondition(
        type="makeway.dev/PreemptionHeld",
        status="True",
        reason="VictimsShare",
        message="the caps on evictions let no more pods go; until 2026-01-31T12:00:30Z at the latest",
    )

    order = as_a(EvictionOrder, MESSAGES["order.full"])
    story = Story(order=order, outcome=None, decision=None)
    found = Pending(answer=refused, unblocked_by=())

    lines = pending_lines(found, story, waits_for=held)

    assert lines[0].endswith("is pending: room is being made for it")
    assert lines[1] == (
        "  its order waits: VictimsShare: the caps on evictions let no more pods go; "
        "until 2026-01-31T12:00:30Z at the latest"
    )


def test_a_pod_that_waits_while_the_brake_is_set_is_told_so() -> None:
    found = Pending(answer=replace(refused, result="preempts", nominated_node="node-1"), unblocked_by=())

    text = "\n".join(pending_lines(found, brake="the brake is set everywhere by ops"))

    assert (
        "  the brake is set everywhere by ops: no pod is evicted until it is released (`makeway mode" in text
    )


def test_an_order_for_a_group_is_told_as_one_for_the_group() -> None:
    order = as_a(EvictionOrder, MESSAGES["order.group"])
    story = Story(order=order, outcome=None, decision=None)

    first, *_ = of_order(story)
    told = "\n".join(preempted(story, order.victims[0]))

    assert first.endswith("room for group shop/train-7 (2 members, priority 1000) on 2 nodes")
    assert "  for:   group shop/train-7 (2 members, priority 1000)" in told


def test_of_many_victims_the_first_of_each_end_are_named_and_the_others_counted() -> None:
    order, outcome = MESSAGES["order.full"], MESSAGES["outcome.full"]
    assert isinstance(order, EvictionOrder)
    assert isinstance(outcome, Outcome)
    victims = tuple(replace(order.victims[0], name=f"v{n}", uid=f"u{n}") for n in range(100))
    ends = tuple(
        VictimOutcome(
            namespace=one.namespace, name=one.name, uid=one.uid, result="failed" if n == 70 else "deleted"
        )
        for n, one in enumerate(victims)
    )
    story = Story(
        order=replace(order, victims=victims), outcome=replace(outcome, victims=ends), decision=None
    )

    lines = list(of_order(story))

    named = [line for line in lines if line.startswith("  - ")]
    assert len(named) == 21
    assert "/v70 " in named[-1]
    assert "  and 79 victims more: deleted" in lines
    victims = tuple(replace(one, pdb_violating=one.name == "v3") for one in victims)
    violating = [line for line in of_order(Story(order=replace(order, victims=victims))) if "a PDB" in line]
    assert [line.partition(";")[2] for line in violating] == [" it violates a PDB; no outcome yet"]


def test_an_order_that_no_evictor_has_carried_out_in_time_is_told_so() -> None:
    order = MESSAGES["order.full"]
    assert isinstance(order, EvictionOrder)
    story = Story(order=order, overdue=True)

    lines = pending_lines(Pending(answer=refused, unblocked_by=()), story)

    assert "room is being made" not in "\n".join(lines)
    assert any("last order: ord-" in line and "no evictor carried it out in time" in line for line in lines)
    assert any("`makeway check` says whether one runs" in line for line in of_order(story))


def test_an_order_that_made_room_is_not_called_in_vain() -> None:
    assert "last order" not in said("succeeded")


def test_a_pod_that_its_queue_holds_is_explained_by_its_queue_first() -> None:
    full = PodCondition(
        type="PodScheduled", status="False", reason="QueueFull", message="queue root.ml: cpu 4 of 4 used"
    )

    lines = pending_lines(Pending(answer=refused, unblocked_by=()), held=full)

    assert lines[:4] == [
        "shop/checkout (priority 1000) is pending",
        "  its queue holds it: QueueFull: queue root.ml: cpu 4 of 4 used",
        "planned again now:",
        "shop/checkout (priority 1000) stays pending",
    ]


def test_a_pod_that_its_scheduler_had_no_plan_for_is_told_so() -> None:
    message = (
        "0/2 nodes are available. makeway: no plan: no planner answers; nothing is evicted without a plan"
    )
    pod = Pod(
        metadata=Metadata(name="checkout"),
        spec=PodSpec(),
        status=PodStatus(
            conditions=(
                PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message),
            )
        ),
    )
    found = Pending(answer=replace(refused, result="preempts", nominated_node="node-1"), unblocked_by=())

    text = "\n".join(pending_lines(found, unplanned=unplanned(pod)))

    assert "its scheduler had no plan: no planner answers; nothing is evicted without a plan" in text
    assert "its scheduler says" not in text


@pytest.mark.parametrize("result", ["refused", "preempts", "fits"])
def test_a_pod_whose_preemption_is_delayed_is_told_until_when(result: str) -> None:
    reason = "preemption is delayed until 2026-03-01T12:00:30Z: PriorityClass patient has a delay of 30s"
    message = f"0/2 nodes are available. makeway: {reason}"
    condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    pod = Pod(metadata=Metadata(name="checkout"), spec=PodSpec(), status=PodStatus(conditions=(condition,)))
    found = Pending(answer=replace(refused, result=result, nominated_node="node-1"), unblocked_by=())

    lines = pending_lines(found, delayed=delayed(pod))

    assert lines[:3] == ["shop/checkout (priority 1000) is pending", f"  {reason}", "planned again now:"]


@pytest.mark.parametrize("result", ["refused", "preempts", "fits"])
def test_a_pod_of_a_group_is_told_who_preempts_for_it(result: str) -> None:
    found = Pending(answer=replace(refused, result=result, nominated_node="node-1"), unblocked_by=())

    text = "\n".join(pending_lines(found, group="train"))

    assert "  a pod of PodGroup shop/train\n" in text
    assert "for the group as a whole" in text
    assert "planned again now, as a pod by itself:\n" in text


def test_victims_that_go_together_are_told_as_one() -> None:
    pods = [
        make_victim(name, namespace="shop", uid=name, node=node, unit="PodGroup shop/train")
        for name, node in (("a", "node-1"), ("b", "node-2"))
    ]
    answer = replace(refused, result="preempts", nominated_node="node-1", victims=tuple(pods))

    text = "\n".join(pending_lines(Pending(answer=answer, unblocked_by=())))

    assert "  - group shop/train: 2 pods on 2 nodes (priority 0): lower-priority" in text


@pytest.mark.parametrize(
    ("answer", "place"), [(refused, None), (replace(refused, result="fits", node="node-1"), "node-1")]
)
def test_a_hold_without_a_plan_is_named_whatever_is_planned(answer: SimulatedPod, place: str | None) -> None:
    found = Pending(answer=answer, unblocked_by=())

    text = "\n".join(pending_lines(found, unplanned="no plan: nothing is evicted"))

    assert "its scheduler had no plan: nothing is evicted" in text
    assert (place or "stays pending") in text


@pytest.mark.parametrize(
    "held",
    [
        "groups.preemptors of the policy is hold: nothing is evicted for pods of a scheduling group",
        "the gate WorkloadAwarePreemption leaves pods of a scheduling group to a plugin named "
        "DefaultPreemption: nothing is evicted for them",
    ],
)
def test_a_groups_pod_for_which_none_is_evicted_is_not_said_to_be_left_to_kube_scheduler(held: str) -> None:
    condition = PodCondition(type="PodScheduled", status="False", message=f"0/2 nodes: makeway: {held}")
    pod = Pod(metadata=Metadata(), spec=PodSpec(), status=PodStatus(conditions=(condition,)))
    answer = replace(refused, result="preempts", nominated_node="node-1")
    found = Pending(answer=answer, unblocked_by=())

    text = "\n".join(pending_lines(found, group="train", unplanned=unplanned(pod)))

    assert f"its scheduler had no plan: {held}" in text
    assert "it is left to" not in text


def test_a_pod_that_another_scheduler_made_room_for_is_told_by_whom_and_at_whose_cost() -> None:
    comparison = as_a(Comparison, MESSAGES["comparison.full"])
    theirs = there(comparison.default_preemption)
    pod = f"{comparison.preemptor.namespace}/{comparison.preemptor.name}"

    text = "\n".join(served_by_another(comparison))

    assert f"  {comparison.preemptor.scheduler_name} made room for {pod} (priority " in text
    assert f" on {theirs.node} " in text
    assert ", not makeway\n" in text
    assert text.count("\n  - ") == len(theirs.victims)
    assert "makeway would have" in text
    assert "no order" in "\n".join(_lines(placed()))
    assert "room was made for it, not by makeway" in "\n".join(_lines(placed(comparison)))


def placed(*served: Comparison) -> Explanation:
    return Explanation(state="placed", namespace="shop", name="checkout", served_by_others=served)


@pytest.mark.parametrize("what", ["a/b/c", "shop/", "pod/a/b/c", ""])
def test_what_names_no_pod_is_said_to_be_wrong_usage(what: str) -> None:
    with pytest.raises(typer.BadParameter, match="names no pod: give POD, NAMESPACE/POD"):
        _object(what)


def test_a_pod_is_named_with_or_without_namespace_and_kind() -> None:
    assert [_object(what) for what in ("a", "shop/a", "pod/a", "pods/shop/a")] == [
        ("", "", "a"),
        ("", "shop", "a"),
        ("pod", "", "a"),
        ("pod", "shop", "a"),
    ]


def test_the_pods_own_condition_is_quoted_unless_it_is_told_in_words() -> None:
    told = "Unschedulable: 0/3 nodes are available: 3 node(s) exceed max volume count."
    found = Pending(answer=replace(refused, warnings=("not judged: x",)), unblocked_by=())

    text = "\n".join(pending_lines(found, condition=told))

    assert f"  its scheduler says: {told}" in text
    assert "  note: not judged: x" in text
    assert told not in "\n".join(pending_lines(found, condition=told, delayed="preemption is delayed"))
