"""The evictor's judgement, case by case."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from makeway.bus.messages import (
    EvictionOrder,
    Fence,
    NominationToClear,
    Outcome,
    OutcomeResult,
    VictimOutcome,
    VictimResult,
)
from makeway.core.k8s.objects import Node, Pod
from makeway.core.policy.document import Policy
from makeway.core.policy.rules import PreemptorFacts, rules_in_force
from makeway.evictor.judge import decide
from makeway.evictor.judge.awaited import awaited_state
from makeway.evictor.judge.verdicts import (
    Cancelled,
    Delete,
    Epoch,
    Exempt,
    Expired,
    Failed,
    Gone,
    Proceed,
    Refused,
    Stop,
    Terminating,
    VictimVerdict,
)
from narrowing import as_a
from unit.evictor.building import (
    CLUSTER,
    EPOCH,
    NODE_UID,
    NOW,
    a_pod,
    awaiting,
    make_node,
    make_order,
    make_outcome,
    make_preemptor,
    make_victim,
    preemptor_pod,
)

ORDER = make_order("v")
PREEMPTOR = preemptor_pod().build()
THE_NODE = make_node()


ANOTHER = Fence(kind="lease", namespace="default", name="makeway-scheduler", epoch=EPOCH)
OF_PLANNERS = Fence(kind="lease", namespace="makeway-system", name="makeway-planner", epoch=EPOCH)
FAR_AHEAD = Fence(kind="lease", namespace="kube-system", name="makeway-scheduler", epoch=2**62)
COUNTER = Fence(kind="kv", name="makeway-scheduler", epoch=EPOCH)


def _waits_for(pod: Pod | None, node: str) -> bool:
    return decide.is_nominated(pod, preemptor_pod().build().metadata.uid, node)


def admit(order: EvictionOrder = ORDER, *, cluster_uid: str = CLUSTER, now: datetime = NOW) -> Stop | None:
    return decide.admit(order, cluster_uid=cluster_uid, now=now)


def wanted(
    order: EvictionOrder = ORDER,
    *,
    epoch: int | None = EPOCH,
    since: datetime | None = None,
    preemptor: Pod | None = PREEMPTOR,
    node: Node | None = THE_NODE,
    now: datetime = NOW,
) -> Proceed | Stop:
    return decide.still_wanted(
        order,
        stored_at=NOW,
        epoch=None if epoch is None else Epoch(epoch, since=since),
        preemptor=preemptor,
        node=node,
        now=now,
    )


def judge(pod: Pod | None, *, assumed: bool = False) -> VictimVerdict:
    return decide.judge(
        ORDER,
        make_victim("v", assumed=assumed),
        pod,
        preemptor=PreemptorFacts(1000),
        rules=rules_in_force(Policy(), {}),
        now=NOW,
    )


TO_CLEAR = NominationToClear(namespace="default", name="lower", uid="lower-uid")


# ---------------------------------------------------------------------------------------- an order by itself


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("other-cluster", admit(cluster_uid="cluster-2")),
        ("incomplete-order", admit(make_order("v", preemptor=None))),
        ("incomplete-order", admit(make_order("v", node=""))),
        ("named-twice", admit(make_order("v", "v"))),
        ("named-twice", admit(make_order("v", awaited=(*awaiting("o-1"), *awaiting("o-2"))))),
        ("named-twice", admit(make_order("v", nominations_to_clear=(TO_CLEAR, TO_CLEAR)))),
        ("incomplete-order", admit(make_order("v", node_uid=""))),
        ("invalid-name", admit(make_order(make_victim("../../nodes/a")))),
        ("invalid-name", admit(make_order("v", preemptor=make_preemptor(namespace="..")))),
        ("invalid-name", admit(make_order("v", fence=Fence(kind="lease", name="x", epoch=1)))),
        ("fence-unknown", admit(make_order("v", fence=ANOTHER))),
        ("fence-unknown", admit(make_order("v", fence=OF_PLANNERS))),
        ("fence-unknown", admit(make_order("v", fence=COUNTER))),
    ],
)
def test_an_order_that_does_not_fit_is_refused(reason: str, stop: Stop | None) -> None:
    assert as_a(Refused, stop).reason == reason


def test_an_order_expires_at_its_not_after_and_not_before() -> None:
    order = make_order("v")

    assert admit(order, now=order.not_after - timedelta(microseconds=1)) is None
    assert isinstance(admit(order, now=order.not_after), Expired)


def test_an_order_for_another_cluster_is_refused_even_when_it_is_late() -> None:
    assert isinstance(admit(cluster_uid="cluster-2", now=NOW + timedelta(days=1)), Refused)


# ------------------------------------------------------------------------------ an order against the cluster


def test_the_preemptors_priority_is_the_api_servers_word() -> None:
    order = make_order("v", preemptor=make_preemptor(priority=10**9))

    assert wanted(order) == Proceed(PreemptorFacts(1000, "default"))
    assert wanted(order, preemptor=preemptor_pod().priority(None).build()) == Proceed(
        PreemptorFacts(0, "default")
    )


def test_an_order_stored_before_the_present_epoch_began_stands() -> None:
    assert isinstance(wanted(epoch=EPOCH + 1, since=NOW + timedelta(seconds=1)), Proceed)
    assert isinstance(wanted(epoch=EPOCH + 1, since=NOW), Refused)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("fence-missing", wanted(epoch=None)),
        ("future-epoch", wanted(epoch=EPOCH - 1)),
        ("future-epoch", wanted(make_order("v", fence=FAR_AHEAD))),
        ("preemption-policy-never", wanted(preemptor=preemptor_pod().never_preempts().build())),
    ],
)
def test_what_may_not_be_carried_out_is_refused(reason: str, stop: Proceed | Stop) -> None:
    assert as_a(Refused, stop).reason == reason


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("preemptor-gone", wanted(preemptor=None)),
        ("preemptor-gone", wanted(preemptor=preemptor_pod().uid("another").build())),
        ("preemptor-terminating", wanted(preemptor=preemptor_pod().terminating().build())),
        ("preemptor-bound", wanted(preemptor=preemptor_pod().on("node-b").build())),
        ("preemptor-ended", wanted(preemptor=preemptor_pod().phase("Failed").build())),
        ("nomination-moved", wanted(preemptor=preemptor_pod().nominated("node-b").build())),
        ("nomination-moved", wanted(preemptor=preemptor_pod().nominated(None).build())),
        ("node-gone", wanted(node=None)),
        ("node-gone", wanted(node=make_node("another"))),
        ("node-gone", wanted(node=make_node(NODE_UID, terminating=True))),
    ],
)
def test_what_is_not_needed_any_more_is_cancelled(reason: str, stop: Proceed | Stop) -> None:
    assert as_a(Cancelled, stop).reason == reason


def test_time_may_run_out_between_two_looks() -> None:
    assert isinstance(wanted(now=NOW + timedelta(seconds=60)), Expired)


# -------------------------------------------------------------------------------------------------- a victim


def test_a_running_pod_of_lower_priority_is_deleted_after_it_is_marked() -> None:
    assert judge(a_pod("v").build()) == Delete(True, "1")


def test_a_pod_that_carries_a_mark_already_is_not_marked_again() -> None:
    assert judge(a_pod("v").marked().build()) == Delete(False, "1")
    assert judge(a_pod("v").marked(reason="EvictionByEvictionAPI").build()) == Delete(False, "1")


def test_a_pod_without_priority_counts_as_zero() -> None:
    assert judge(a_pod("v").priority(None).build()) == Delete(True, "1")


@pytest.mark.parametrize(
    ("reason", "pod"),
    [
        ("not-found", None),
        ("other-uid", a_pod("v").uid("recreated").build()),
        ("ended", a_pod("v").phase("Succeeded").build()),
        ("ended", a_pod("v").phase("Failed").build()),
    ],
)
def test_a_pod_that_holds_no_room_is_gone(reason: str, pod: Pod | None) -> None:
    assert judge(pod) == Gone(reason)  # type: ignore[arg-type]


def test_a_terminating_pod_is_left_to_leave() -> None:
    assert judge(a_pod("v").terminating(grace=45).build()) == Terminating(45)


@pytest.mark.parametrize(
    ("reason", "pod"),
    [
        ("mirror-pod", a_pod("v").mirror().build()),
        ("not-bound", a_pod("v").on(None).build()),
        ("on-another-node", a_pod("v").on("node-b").build()),
        ("lower-priority", a_pod("v").priority(1000).build()),
        ("lower-priority", a_pod("v").priority(1001).build()),
    ],
)
def test_a_pod_that_may_not_go_is_spared(reason: str, pod: Pod) -> None:
    verdict = as_a(Exempt, judge(pod))
    assert verdict.reason == reason


def test_an_assumed_pod_may_be_unbound_or_bound_to_the_node() -> None:
    assert judge(a_pod("v").on(None).build(), assumed=True) == Delete(True, "1", bound=False)
    assert judge(a_pod("v").build(), assumed=True) == Delete(True, "1")


def test_an_assumed_pod_that_was_bound_elsewhere_holds_no_room_here() -> None:
    assert judge(a_pod("v").on("node-b").build(), assumed=True) == Gone("elsewhere")


# -------------------------------------------------------------------------------------------- awaited orders


def ended(**results: OutcomeResult | None) -> dict[str, Outcome | None]:
    return {name: None if one is None else make_outcome(name, one) for name, one in results.items()}


BOTH = (*awaiting("one"), *awaiting("two"))


@pytest.mark.parametrize("result", ["failed", "expired", "refused", "cancelled"])
def test_one_did_not_make_its_room_though_another_is_live(result: OutcomeResult) -> None:
    state = as_a(Failed, awaited_state(BOTH, ended(one=None, two=result)))

    assert state.reason == "awaited-order-failed"


@pytest.mark.parametrize(
    ("became", "goes"),
    [("deleted", True), ("terminating", True), ("gone", True), ("spared", False), ("notAttempted", False)],
)
def test_one_that_was_cut_short_has_removed_the_pod_that_is_awaited(became: VictimResult, goes: bool) -> None:
    """An order of a quota ends so where the caps let only some of its victims go."""
    victim = VictimOutcome(namespace="default", name="awaited", uid="awaited-uid", result=became)
    outcome = replace(make_outcome("one", "refused"), victims=(victim,))

    assert (awaited_state(awaiting("one"), {"one": outcome}) is None) == goes


# ----------------------------------------------------------------------------------------------- nominations


def test_a_listed_nomination_yields_only_below_the_preemptor_and_on_this_node() -> None:
    order = make_order("v")
    pod = a_pod("w").on(None).nominated("node-a")
    listed = NominationToClear(namespace="default", name="w", uid="w-uid")
    elsewhere = replace(listed, node="node-b")

    assert decide.nomination_yields(order, elsewhere, pod.nominated("node-b").build(), 1000)
    assert not decide.nomination_yields(order, elsewhere, pod.nominated("node-a").build(), 1000)
    assert decide.nomination_yields(order, listed, pod.priority(999).build(), 1000)
    assert not decide.nomination_yields(order, listed, pod.priority(1000).build(), 1000)
    assert not decide.nomination_yields(order, replace(listed, uid="another"), pod.priority(0).build(), 1000)
    assert not decide.nomination_yields(order, listed, pod.nominated("node-b").build(), 1000)
    assert not decide.nomination_yields(order, listed, pod.nominated("node-a").on("node-a").build(), 1000)
    assert not decide.nomination_yields(order, listed, None, 1000)


def test_no_nomination_is_taken_from_a_pod_in_the_last_moment_of_its_deletion() -> None:
    # A patch then would have kube-apiserver delete whatever has the pod's name next.
    leaving = preemptor_pod().terminating(grace=0)

    assert not _waits_for(leaving.build(), "node-a")
    assert _waits_for(leaving.finalizer("example.com/held").build(), "node-a")


def test_a_pod_is_nominated_until_it_is_bound_moved_or_replaced() -> None:
    assert _waits_for(preemptor_pod().build(), "node-a")
    assert not _waits_for(preemptor_pod().on("node-a").build(), "node-a")
    assert not _waits_for(preemptor_pod().nominated("node-b").build(), "node-a")
    assert not _waits_for(preemptor_pod().uid("another").build(), "node-a")
    assert not _waits_for(None, "node-a")
