"""Orders of a nominator: for pods that their scheduler does not preempt for, of classes that are opted in."""

import pytest

from makeway.bus.codec import source
from makeway.bus.messages import EvictionOrder, Fence
from makeway.core.k8s.objects import Metadata, PriorityClass
from makeway.evictor.judge import decide
from makeway.evictor.judge.fences import Fences
from makeway.evictor.judge.verdicts import Epoch, Proceed, Refused
from narrowing import as_a
from unit.evictor.building import CLUSTER, EPOCH, NOW, make_node, make_order, preemptor_pod

NOMINATORS = Fence(kind="lease", namespace="makeway-system", name="makeway-nominator", epoch=EPOCH)
ORDER = make_order("v", writer="makeway/nominator/n1", fence=NOMINATORS)
NEVER = preemptor_pod().of_class("urgent").never_preempts().build()


def a_class(policy: str = "Never", annotation: str = "external") -> PriorityClass:
    annotations = {"makeway.dev/preemption": annotation}
    return PriorityClass(metadata=Metadata(name="urgent", annotations=annotations), preemption_policy=policy)


def judged(
    order: EvictionOrder, priority_class: PriorityClass | None, *, may: bool = False
) -> Proceed | object:
    pod = preemptor_pod().of_class("urgent").build() if may else NEVER
    return decide.still_wanted(
        order,
        stored_at=NOW,
        epoch=Epoch(EPOCH),
        preemptor=pod,
        node=make_node(),
        now=NOW,
        priority_class=priority_class,
    )


@pytest.mark.parametrize(
    ("order", "external"),
    [
        (make_order("v", writer=source("nominator", "n1")), True),
        (make_order("v", writer=source("nominators", "n1")), False),
        (make_order("v", writer="makeway-scheduler"), False),
        (make_order("v", writer=source("nominator", "n1"), kind="group"), False),
        (make_order("v", writer=source("nominator", "n1"), kind="quota"), False),
    ],
    ids=["nominator", "another-name", "scheduler", "group", "quota"],
)
def test_an_order_for_a_pod_is_external_where_a_nominator_wrote_it(
    order: EvictionOrder, *, external: bool
) -> None:
    assert order.is_external is external


def test_a_class_that_is_opted_in_lets_a_nominator_preempt() -> None:
    assert isinstance(judged(ORDER, a_class()), Proceed)


@pytest.mark.parametrize(
    ("judgement", "reason"),
    [
        (judged(ORDER, None), "not-opted-in"),
        (judged(ORDER, a_class(annotation="no")), "not-opted-in"),
        (judged(ORDER, a_class("PreemptLowerPriority")), "not-opted-in"),
        (judged(ORDER, a_class(), may=True), "not-opted-in"),
        (judged(make_order("v"), a_class()), "preemption-policy-never"),
    ],
    ids=["no class", "not opted in", "its pods may preempt", "the pod may preempt", "by a scheduler"],
)
def test_anything_else_does_not(judgement: object, reason: str) -> None:
    assert as_a(Refused, judgement).reason == reason


@pytest.mark.parametrize(
    "order",
    [
        make_order("v", writer="makeway/nominator/n1"),
        make_order("v", fence=NOMINATORS),
        make_order("v", writer="makeway/nominator/n1", fence=Fence(kind="kv", name="any", epoch=0)),
    ],
    ids=["a nominator with the scheduler's fence", "a scheduler with the nominator's", "a counter"],
)
def test_each_writer_has_a_fence_of_its_own(order: EvictionOrder) -> None:
    found = as_a(Refused, decide.admit(order, cluster_uid=CLUSTER, now=NOW, fences=Fences.of()))

    assert found.reason == "fence-unknown"
