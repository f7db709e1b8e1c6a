"""Preemption loops: owners whose pods are preempted for one another's again and again, seen and broken."""

import asyncio

import pytest

from integration.asking import run
from integration.builders import PodBuilder, make_node, make_pod
from integration.preempting import run_victims, sized
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.core.k8s.objects import Pod
from makeway.planner.observe.loops import LOOP_AT_LEAST
from makeway.planner.observe.reasons import PREEMPTION_LOOP


async def owners(space: Space, *names: str) -> list[Pod]:
    """Pods that stand for owners; they ask for no room."""
    return await space.run(*[make_pod(name).priority("high").on("n1") for name in names])


async def refused(space: Space, name: str) -> bool:
    """Wait until a pod is bound, or is told that it goes on with a loop; report which."""

    async def ask() -> tuple[bool]:
        pod = await space.pod(name)
        messages = " ".join(one.message or "" for one in pod.status.conditions or ()) if pod else ""
        told = "are preempted again and again for pods of this one's owner" in messages
        if pod is None or not (told or pod.spec.node_name):
            raise NotYet(messages)
        return (told,)

    (found,) = await until(f"{name} is bound or refused", ask)
    return found


@pytest.mark.timeout(240)
async def test_makeway_backs_off_from_a_loop_of_its_own_and_says_so(space: Space) -> None:
    """The preemptor goes as soon as it runs, and the victim's replacement takes its place."""
    await space.add_nodes(make_node("n1").cpu("500m"))
    web, urgent = await owners(space, "web", "urgent")
    for turn in range(3 * LOOP_AT_LEAST):
        await run_victims(space, sized(f"web-{turn}", "low", 500).owned_by(web).on("n1"))
        (last,) = await space.create(sized(f"urgent-{turn}", "high", 500).owned_by(urgent))
        if await refused(space, f"urgent-{turn}"):
            break
        await space.remove(f"urgent-{turn}", grace_seconds=0)
        if not turn:
            await asyncio.sleep(1)  # a replacement's creation is told in whole seconds

    _, checked, _ = await run(space.cluster, "check")
    _, why, _ = await run(space.cluster, "why", f"{space.namespace}/urgent-{turn}")
    names = f"pods like {space.namespace}/web-{turn - 1} are preempted again and again for pods like "
    assert turn > LOOP_AT_LEAST, "it is no loop before"
    assert f"preemption loops: {names}{space.namespace}/urgent-{turn - 1}" in checked
    assert f": {PREEMPTION_LOOP}: pods of the owner of" in why
    assert await space.until_bound(f"urgent-{turn}", seconds=60) == "n1"
    *refusals, planned = await space.bus.decisions(last.metadata.uid)
    assert {one.diagnosis.reason for one in refusals if one.diagnosis} == {PREEMPTION_LOOP}
    assert planned.victims


async def replica_set(space: Space, name: str, pod: PodBuilder) -> None:
    """Keep one pod of a sort, whatever becomes of it."""
    labels = {"app": name}
    spec = space.pod_spec(pod.build()["spec"])
    await space.post(
        f"/apis/apps/v1/namespaces/{space.namespace}/replicasets",
        {
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    )
