"""Preemption loops: owners whose pods are preempted for one another's again and again, seen and broken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from integration.asking import run
from integration.builders import PodBuilder, make_node, make_pod
from integration.cluster import RunningCluster
from integration.preempting import run_victims, settle, sized
from integration.space import Space, open_space
from integration.waiting import NotYet, until, until_seen
from makeway.core.k8s.objects import Pod
from makeway.dev.options import SCHEDULER
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


@asynccontextmanager
async def second_scheduler(cluster: RunningCluster, name: str, directory: Path) -> AsyncIterator[None]:
    """Run another kube-scheduler beside the cluster's, for pods that name it."""
    program = cluster.process(SCHEDULER).program
    (config,) = (one.removeprefix("--config=") for one in program.argv if one.startswith("--config="))
    document = yaml.safe_load(await asyncio.to_thread(Path(config).read_text))
    document["leaderElection"] = {"leaderElect": False}
    document["profiles"] = [{"schedulerName": name}]
    written, log = directory / f"{name}.yaml", directory / f"{name}.log"
    await asyncio.to_thread(written.write_text, yaml.safe_dump(document))
    others = [one for one in program.argv if not one.startswith(("--config=", "--secure-port="))]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *others, f"--config={written}", "--secure-port=0", stdout=output, stderr=output
        )
        try:
            yield
        finally:
            process.terminate()
            await process.wait()


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


@pytest.mark.timeout(240)
async def test_two_schedulers_that_preempt_each_others_room_are_seen_in_check(
    observed_cluster: RunningCluster, tmp_path: Path
) -> None:
    """One preempts a pod of the other, which puts its replacement into the room: neither knows of it."""
    cluster = observed_cluster
    async with open_space(cluster) as space, second_scheduler(cluster, "second", tmp_path):
        await space.add_nodes(make_node("n1").cpu("500m"))
        await replica_set(space, "web", sized("web", "low", 500).spec(schedulerName="second"))

        await until_seen(
            "a pod of web runs", space.pods, lambda pods: any(pod.spec.node_name for pod in pods.values())
        )
        await settle()
        await replica_set(space, "urgent", sized("urgent", "high", 500))

        async def seen() -> str:
            for name, pod in (await space.pods()).items():
                if name.startswith("urgent-") and pod.spec.node_name:
                    await space.delete(name, grace_seconds=0)  # it won: another round
            _, checked, _ = await run(cluster, "check")
            found = [line for line in checked.splitlines() if "preemption loops: pods like" in line]
            if not found:
                raise NotYet(checked)
            return found[0]

        line = await until("check tells of the loop", seen, seconds=180, every=1)

    assert f"pods like {space.namespace}/web-" in line
    assert f"for pods like {space.namespace}/urgent-" in line
