"""Whose pods a queue gate holds: what schedulers tell of, and for how long that counts."""

from collections.abc import Sequence
from datetime import timedelta

from makeway.bus.component_status import Component, ComponentStatus
from makeway.bus.messages import API_VERSION
from makeway.planner.quota.gates import FRESH, REMEMBERED, QueueGates
from unit.planner.building import NOW


def status(*gates: str, component: Component = "scheduler", cluster: str = "c") -> ComponentStatus:
    return ComponentStatus(
        api_version=API_VERSION,
        component=component,
        identity="one",
        version="0.1.0",
        at=NOW,
        mode="enforce",
        own_mode="enforce",
        cluster_uid=cluster,
        queue_gates=gates,
    )


class Asked:
    """Answers what it is told to, and counts the questions."""

    def __init__(self, *answers: ComponentStatus) -> None:
        self.answers: Sequence[ComponentStatus] = answers
        self.questions = 0

    async def ask(self, seconds: float) -> Sequence[ComponentStatus]:
        self.questions += 1
        return self.answers


async def test_the_gates_are_those_of_the_schedulers_of_this_cluster() -> None:
    asked = Asked(
        status("a", "b"), status("other", cluster="d"), status("shadow", component="shadow"), status()
    )

    assert await QueueGates(asked, "c").names(NOW) == {"a", "b"}


async def test_an_answer_counts_for_a_moment_without_being_asked_for_again() -> None:
    asked = Asked(status("a"))
    gates = QueueGates(asked, "c")

    await gates.names(NOW)
    await gates.names(NOW + FRESH)
    assert asked.questions == 1
    await gates.names(NOW + 2 * FRESH)
    assert asked.questions == 2


async def test_that_no_scheduler_answers_counts_as_long() -> None:
    """Else each of a thousand queues that are due waits for answers."""
    asked = Asked()
    gates = QueueGates(asked, "c")
    assert await gates.names(NOW) == frozenset()

    asked.answers = (status("a"),)

    assert await gates.names(NOW + FRESH) == frozenset()
    assert await gates.names(NOW + FRESH + timedelta(seconds=1)) == {"a"}


async def test_a_scheduler_that_is_away_is_remembered_for_a_while() -> None:
    asked = Asked(status("a"))
    gates = QueueGates(asked, "c")
    await gates.names(NOW)
    asked.answers = ()

    assert await gates.names(NOW + REMEMBERED) == {"a"}
    assert await gates.names(NOW + REMEMBERED + timedelta(seconds=1)) == frozenset()
