"""What `makeway check` says of PriorityClasses."""

import msgspec

from makeway.cli.check.priority_classes import judge
from makeway.core.k8s.objects import PriorityClass
from makeway.core.policy.delay import PREEMPTION_DELAY
from makeway.core.policy.external import ANNOTATION, EXTERNAL
from unit.planner.building import make_class


def delaying(name: str, delay: str, minimum: str | None = None) -> PriorityClass:
    return make_class(name, minimum, annotations={PREEMPTION_DELAY: delay})


def test_classes_that_delay_preemption_are_named() -> None:
    result = judge(
        [make_class("steady", 5, 30), delaying("patient", "90s"), delaying("hasty", "0s")], nominator=False
    )

    assert (result.state, result.detail) == (
        "ok",
        "3, all annotations can be read; delay preemption: patient by 1m30s",
    )


def test_classes_without_annotations_are_counted() -> None:
    assert judge([make_class("plain")], nominator=False).detail == "1, all annotations can be read"


def test_annotations_that_cannot_be_read_are_told_with_what_they_mean() -> None:
    result = judge([delaying("both", "soon", "a"), make_class("plain")], nominator=False)

    assert result.state == "warning"
    assert "both: annotation preemption-toleration" in result.detail
    assert "no pod of it is preempted; both: annotation makeway.dev/preemption-delay: 'soon'" in result.detail
    assert result.detail.endswith("nothing is delayed")
    assert result.remedy


def test_a_toleration_without_a_time_is_told_to_have_no_effect() -> None:
    result = judge([make_class("short", 5), make_class("steady", 5, 0)], nominator=False)

    assert result.state == "warning"
    assert result.detail.startswith("short: without preemption-toleration")
    assert result.detail.endswith("toleration-seconds its pods tolerate no preemption")


def test_only_so_many_classes_are_named() -> None:
    result = judge([delaying(f"class-{number}", "soon") for number in range(8)], nominator=False)

    assert result.detail.endswith("; and 3 more")
    assert "class-4" in result.detail
    assert "class-5" not in result.detail


def opted_in(name: str, policy: str = "Never") -> PriorityClass:
    return msgspec.structs.replace(
        make_class(name, annotations={ANNOTATION: EXTERNAL}), preemption_policy=policy
    )


def test_classes_that_are_opted_in_are_named() -> None:
    result = judge([opted_in("urgent"), make_class("plain")], nominator=True)

    assert (result.state, result.detail) == (
        "ok",
        "2, all annotations can be read; makeway nominator preempts for: urgent",
    )


def test_a_nominator_without_a_class_that_is_opted_in_only_watches() -> None:
    result = judge([make_class("plain")], nominator=True)

    assert result.state == "ok"
    assert "none is opted in, so the nominator only watches" in result.detail


def test_a_class_that_may_preempt_by_itself_cannot_be_opted_in() -> None:
    result = judge([opted_in("urgent", "PreemptLowerPriority")], nominator=True)

    assert result.state == "warning"
    assert result.detail == f"urgent: {ANNOTATION}: {EXTERNAL} has no effect without preemptionPolicy: Never"
    assert "make the class anew" in result.remedy


def test_a_class_that_is_opted_in_needs_a_nominator() -> None:
    result = judge([opted_in("urgent")], nominator=False)

    assert result.state == "warning"
    assert "without a nominator: urgent" in result.detail
