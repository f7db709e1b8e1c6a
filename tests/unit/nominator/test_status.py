"""What a nominator says when it is asked how it is."""

from unittest.mock import Mock

from prometheus_client import CollectorRegistry

from makeway.bus.component_status import ComponentStatus
from makeway.bus.control import ControlState
from makeway.cli.mode.components import confirmation
from makeway.core.policy.brake import Brake
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.process import nominator_status
from makeway.nominator.streams import ControlFollower

CLUSTER = "c"


def status(control: ControlFollower) -> ComponentStatus:
    return nominator_status(
        "n", CLUSTER, control, leading=True, trouble="", brake=Brake(), signatures="require"
    )


def test_it_confirms_a_policy_once_the_planner_has_told_of_it() -> None:
    control = ControlFollower(Mock(), CLUSTER, "enforce", NominatorMetrics(CollectorRegistry()))

    before = confirmation(status(control), revision="sha256:new", mode="enforce")
    control.state = ControlState(
        revision=7, mode="enforce", cluster_uid=CLUSTER, policy_revision="sha256:new"
    )
    after = confirmation(status(control), revision="sha256:new", mode="enforce")

    assert (before.confirmed, before.why) == (False, "has no policy yet")
    assert (after.confirmed, after.why) == (True, "")
