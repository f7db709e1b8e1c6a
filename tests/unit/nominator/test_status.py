"""What a nominator says when it is asked how it is."""

from makeway.bus.component_status import ComponentStatus
from makeway.bus.control import ControlState
from makeway.cli.mode.components import confirmation
from makeway.nominator.process import nominator_status
from makeway.nominator.streams import StreamsRead

CLUSTER = "c"


def status(streams: StreamsRead) -> ComponentStatus:
    return nominator_status("n", CLUSTER, streams, leading=True)


def test_it_confirms_a_policy_once_the_planner_has_told_of_it() -> None:
    streams = StreamsRead("enforce")

    before = confirmation(status(streams), revision="sha256:new", mode="enforce")
    assert streams.unsynced() == "no planner has said yet which mode is effective"
    streams.state = ControlState(
        revision=7, mode="enforce", cluster_uid=CLUSTER, policy_revision="sha256:new"
    )
    after = confirmation(status(streams), revision="sha256:new", mode="enforce")
    assert streams.unsynced()  # an older state may have been read, and a newer one not yet
    streams.control_read.set()
    assert not streams.unsynced()

    assert (before.confirmed, before.why) == (False, "has no policy yet")
    assert (after.confirmed, after.why) == (True, "")
