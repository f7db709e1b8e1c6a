"""What `makeway check` says of pods that there is no plan for."""

import pytest

from makeway.bus.control import Unplanned
from makeway.cli.check.components import unplanned_result
from makeway.cli.check.result import group_of


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (Unplanned(), "nothing restricts preemption: kube-scheduler's own preemption acts"),
        (Unplanned(restricting=("limits", "queues")), "by limits, queues: pods wait, but"),
        (Unplanned(restricting=("limits",)), "for those of whenUnplanned.system"),
        (Unplanned(restricting=("limits",), default="fallback", system="hold"), "of whenUnplanned.default"),
        (Unplanned(restricting=("limits",), system="hold"), "restricted by limits: pods wait"),
        (Unplanned(restricting=("limits",), default="fallback"), "by whenUnplanned"),
        (
            Unplanned(protecting=("protection.namespaces",), restricting=("limits",), default="fallback"),
            "nothing is evicted, since pods are protected: protection.namespaces, limits",
        ),
    ],
)
def test_what_becomes_of_pods_without_a_plan_is_said_with_the_cause(told: Unplanned, said: str) -> None:
    result = unplanned_result(told)

    assert (result.state, result.remedy, said in result.detail) == ("ok", "", True), result.detail
    assert group_of(result.name) == "scheduler"
