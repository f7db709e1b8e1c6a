"""PreemptionToleration on the real control plane: planner, plugin and evictor keep to the class as it is."""

import json
from datetime import timedelta

import pytest

from integration.builders import PodBuilder, make_node, make_pod
from integration.preempting import (
    assert_stays_pending,
    deletes_of,
    first_decision,
    outcome_of_order,
    run_victims,
    settle,
)
from integration.priority_classes import Classes
from integration.space import Space
from integration.waiting import NotYet, until, until_seen
from makeway.core.k8s.objects import Pod
from narrowing import there

pytestmark = pytest.mark.both_forms(by_target=True)

VICTIM_PRIORITY = 1000
URGENT = (1005, 1009, 1010)


def asks_for(name: str, class_name: str, cpu: int) -> PodBuilder:
    return make_pod(name).spec(priorityClassName=class_name).cpu(cpu)


async def one_victim(space: Space, classes: Classes, minimum: int, seconds: int) -> Pod:
    """A node of 3 CPUs with a pod of 2, of priority 1000 and a class that tolerates."""
    tolerant = await classes.add("tolerant", VICTIM_PRIORITY, minimum, seconds)
    for priority in URGENT:
        await classes.add(f"urgent-{priority}", priority)
    await space.add_nodes(make_node("n1").cpu(3))
    await settle()  # so that admission knows the classes
    (victim,) = await run_victims(space, asks_for("victim", tolerant, 2))
    return victim


async def ask(space: Space, priority: int) -> Pod:
    """A pod of 2 CPUs and one of the priorities URGENT, for which the victim would have to go."""
    (pod,) = await space.create(asks_for("urgent", f"{space.namespace}-urgent-{priority}", 2))
    return pod


def scheduled_at(pod: Pod) -> float:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.last_transition_time is not None:
            return condition.last_transition_time.timestamp()
    raise AssertionError("the pod does not say when it was scheduled")


async def test_below_the_minimum_it_waits_and_is_told_why(space: Space, classes: Classes) -> None:
    await one_victim(space, classes, 1010, -1)

    urgent = await ask(space, 1009)

    await assert_stays_pending(space, "urgent")
    assert deletes_of(space, "victim") == []
    decision = await first_decision(space, urgent)
    assert there(decision.diagnosis).reason == "PodsSpared"
    assert decision.spared_by_rule == {"preemption-toleration": 1}
    (spared,) = decision.nearest[0].spared
    assert (spared.name, spared.until) == ("victim", None)
    assert "1009 < minimum-preemptable-priority 1010" in spared.detail
    pod = there(await space.pod("urgent"))
    messages = " ".join(condition.message or "" for condition in pod.status.conditions or ())
    if not space.cluster.external:
        assert "1 pod exempt by preemption-toleration" in messages


async def test_a_waiting_pod_is_tried_again_as_a_toleration_ends(space: Space, classes: Classes) -> None:
    seconds = 3
    victim = await one_victim(space, classes, 1010, seconds)
    ends = scheduled_at(victim) + seconds

    urgent = await ask(space, 1005)

    await space.until_bound("urgent", seconds=seconds + 10)
    decisions = await space.bus.decisions(urgent.metadata.uid)
    # A planner that was a little behind the scheduler asks to be asked again sooner, and one whose plan was
    # late is asked once more.
    said = [one.diagnosis for one in decisions if one.diagnosis is not None][-1]
    planned = decisions[-1]
    assert said.retry_at is not None
    assert said.retry_at.timestamp() == pytest.approx(ends, abs=0.1)
    assert planned.victims
    order, _ = await outcome_of_order(space, urgent)
    assert order.created_at.timestamp() > ends
    assert order.created_at - said.retry_at < timedelta(seconds=5)


async def test_a_changed_class_counts_for_a_pod_that_runs_and_wakes_whoever_waits_for_it(
    space: Space, classes: Classes
) -> None:
    victim = await one_victim(space, classes, 1010, -1)
    urgent = await ask(space, 1005)
    decision = await first_decision(space, urgent)
    assert decision.diagnosis is not None
    tolerant = classes.names[0]
    assert [one.name for one in decision.diagnosis.depends_on] == [tolerant]

    await classes.ask(tolerant, 1005, -1)

    assert await space.until_bound("urgent") == "n1"
    order, _ = await outcome_of_order(space, urgent)
    assert [one.uid for one in order.victims] == [victim.metadata.uid]


async def test_a_class_that_cannot_be_read_is_told_so(space: Space, classes: Classes) -> None:
    name = await classes.add("mistyped", VICTIM_PRIORITY, "a lot", 30)

    await until_seen(
        "kubectl describe shows the warning",
        lambda: space.cluster.kubectl("describe", "priorityclass", name),
        lambda text: "TolerationUnreadable" in text and "'a lot' is not a whole number" in text,
    )


RECORD = "/api/v1/namespaces/makeway-system/configmaps/makeway-tolerations"


async def recorded(space: Space) -> dict[str, str]:
    return json.loads(await space.api.request("GET", RECORD)).get("data") or {}


async def until_recorded(space: Space, name: str) -> None:
    await until_seen("the class is on record", lambda: recorded(space), lambda seen: name in seen)


async def told_of(space: Space, name: str) -> str:
    """Return what is told of a class that is gone, once it is."""

    async def told() -> str:
        listed = await space.api.request("GET", "/apis/events.k8s.io/v1/namespaces/makeway-system/events")
        for event in json.loads(listed)["items"]:
            if event["reason"] == "TolerationOutlivesClass" and f"PriorityClass {name} " in event["note"]:
                return str(event["note"])
        raise NotYet(f"nothing is told of {name}")

    return await until("what outlives a class is told", told)


async def test_a_toleration_outlives_its_class_until_its_entry_goes(space: Space, classes: Classes) -> None:
    tolerant = f"{space.namespace}-tolerant"
    await one_victim(space, classes, 1010, -1)
    await until_recorded(space, tolerant)

    await classes.delete(tolerant)

    note = await told_of(space, tolerant)
    assert f'--type merge -p \'{{"data":{{"{tolerant}":null}}}}\'' in note
    urgent = await ask(space, 1009)
    await assert_stays_pending(space, "urgent")
    assert deletes_of(space, "victim") == []
    decision = await first_decision(space, urgent)
    assert (
        f"PriorityClass {tolerant} is gone, makeway-tolerations has it"
        in decision.nearest[0].spared[0].detail
    )

    await space.merge(RECORD, {"data": {tolerant: None}})
    assert await space.until_bound("urgent") == "n1"
    assert len(deletes_of(space, "victim")) == 1
    assert tolerant not in await recorded(space)
