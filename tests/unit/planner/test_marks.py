"""Marks left behind: noticed after a while, proposed until they are gone, never while an order lives."""

from datetime import UTC, datetime

from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import PodRef
from makeway.bus.repairs import RepairProposal
from makeway.core.k8s.disruption import lives_on_marked, preemption_message
from makeway.core.k8s.objects import Metadata, Pod, PodCondition, PodSpec, PodStatus
from makeway.planner.orders.ledger import Ledger
from makeway.planner.service.orders.marks import (
    AT_ONCE,
    PATIENCE_SECONDS,
    REPEAT_SECONDS,
    Marks,
    RepairProposer,
)

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
OURS = PodCondition(
    type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=preemption_message("x")
)


def make_pod(name: str, *conditions: PodCondition, phase: str = "Running", leaving: bool = False) -> Pod:
    metadata = Metadata(
        namespace="ns", name=name, uid=f"{name}-uid", deletion_timestamp=NOW if leaving else None
    )
    return Pod(metadata=metadata, spec=PodSpec(), status=PodStatus(phase=phase, conditions=conditions))


def mark(name: str) -> PodRef:
    return PodRef(namespace="ns", name=name, uid=f"{name}-uid")


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def marks_of(*pods: Pod) -> tuple[Marks, Clock]:
    clock = Clock()
    marks = Marks(clock)
    for pod in pods:
        marks.put(pod)
    return marks, clock


def test_only_the_mark_of_a_preemption_on_a_pod_that_lives_on_counts() -> None:
    evicted = PodCondition(type="DisruptionTarget", status="True", reason="EvictionByEvictionAPI")
    over = PodCondition(
        type="DisruptionTarget", status="False", reason=OURS.reason or "", message=OURS.message or ""
    )

    assert lives_on_marked(make_pod("a", OURS))
    assert not lives_on_marked(make_pod("a"))
    assert not lives_on_marked(make_pod("a", evicted))
    assert not lives_on_marked(make_pod("a", over))
    assert not lives_on_marked(make_pod("a", OURS, leaving=True))
    assert not lives_on_marked(make_pod("a", OURS, phase="Failed"))


def test_a_mark_is_proposed_after_a_while_and_again_until_it_is_gone() -> None:
    marks, clock = marks_of(make_pod("a", OURS), make_pod("b"))

    assert marks.due(()) == []
    clock.seconds += PATIENCE_SECONDS
    assert marks.due(()) == [mark("a")]
    assert marks.due(()) == []
    clock.seconds += REPEAT_SECONDS
    assert marks.due(()) == [mark("a")]
    marks.put(make_pod("a"))
    clock.seconds += REPEAT_SECONDS
    assert marks.due(()) == []
    assert len(marks) == 0


def test_the_patience_begins_when_the_last_order_that_names_the_pod_has_ended() -> None:
    marks, clock = marks_of(make_pod("a", OURS))

    clock.seconds += 2 * PATIENCE_SECONDS
    assert marks.due({"a-uid"}) == []
    clock.seconds += PATIENCE_SECONDS - 1
    assert marks.due(()) == []
    clock.seconds += 1
    assert marks.due(()) == [mark("a")]


def test_pods_that_are_gone_are_forgotten() -> None:
    marks, clock = marks_of(make_pod("a", OURS), make_pod("b", OURS), make_pod("c", OURS))

    marks.drop(make_pod("a"))
    marks.retain({"c-uid"})

    clock.seconds += PATIENCE_SECONDS
    assert marks.due(()) == [mark("c")]


def test_a_round_is_bounded_and_takes_those_that_wait_longest() -> None:
    marks, clock = marks_of(*[make_pod(f"late-{number:03}", OURS) for number in range(AT_ONCE)])
    clock.seconds -= 1
    marks.put(make_pod("first", OURS))
    clock.seconds += 1 + PATIENCE_SECONDS

    first = marks.due(())
    second = marks.due(())

    assert len(first) == AT_ONCE
    assert first[0] == mark("first")
    assert second == [mark(f"late-{AT_ONCE - 1:03}")]


class Bus:
    def __init__(self) -> None:
        self.proposals: list[RepairProposal] = []
        self.down = False

    async def propose(self, proposal: RepairProposal) -> None:
        if self.down:
            raise BusUnavailable("not connected")
        self.proposals.append(proposal)


async def test_a_proposal_that_the_bus_does_not_take_is_made_again() -> None:
    marks, clock = marks_of(make_pod("a", OURS))
    bus = Bus()
    repairing = RepairProposer(
        "cluster",
        marks=marks,
        ledger=Ledger(),
        bus=bus,
        synced=lambda: True,
    )
    clock.seconds += PATIENCE_SECONDS

    bus.down = True
    await repairing.propose_once(NOW)
    bus.down = False
    clock.seconds += REPEAT_SECONDS
    await repairing.propose_once(NOW)

    assert [(p.cluster_uid, p.namespace, p.name, p.uid) for p in bus.proposals] == [
        ("cluster", "ns", "a", "a-uid")
    ]
