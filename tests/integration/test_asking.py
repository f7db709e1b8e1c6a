"""`simulate`, `replay` and `why` on the real control plane: they say what was, and what then happens."""

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from integration.asking import GROUP, Answer, ask, asking, dumped, grouped, run, until_recording
from integration.builders import make_node
from integration.preempting import first_decision, outcome_of_order, run_victims, settle, sized
from integration.space import Space
from integration.waiting import NotYet, until
from makeway.bus.decisions import DecisionRecord

ROUNDS = int(os.environ.get("MAKEWAY_REPEAT", "20"))
SHARES = ([500], [250, 250], [300, 200], [200, 200, 100], [100, 100, 100, 100, 100])
SAME_FIELDS = (
    "victims",
    "pdbViolations",
    "candidates",
    "candidatesTotal",
    "sparedByRule",
    "nearest",
    "nodesTotal",
    "nodesPotential",
    "preemptor",
)


async def decided(
    space: Space, seed: int, groups: int
) -> tuple[str, list[dict[str, Any]], list[DecisionRecord]]:
    """Fill nodes at random, dump the cluster, and let pods ask for room; one decision a group.

    Gives the dump, the pods as the API server has admitted them, and what the planner has recorded.
    """
    chance = random.Random(seed)
    places = [(f"g{group}", f"g{group}-n{node}") for group in range(groups) for node in range(3)]
    await space.add_nodes(*(grouped(name, group, 500) for group, name in places))
    victims, covered = [], Counter[str]()
    for group, name in places:
        for number, cpu in enumerate(chance.choice(SHARES)):
            victim = sized(f"{name}-v{number}", chance.choice(["neg", "low", "low", "mid"]), cpu)
            if chance.random() < 0.5:
                victim.label("app", group)
                covered[group] += 1
            victims.append(victim.on(name).started(chance.randrange(5)))
    await run_victims(space, *victims)
    for group, count in covered.items():
        await space.disruption_budget(group, {"app": group}, minAvailable=count - 1)
        await space.until_disruptions_allowed(group, 1)
    await settle()
    await until_recording(space.cluster)
    dump = await dumped(space.cluster)
    created = await space.create(
        *(
            asking(f"g{group}", chance.choice(["low", "mid", "high"]), chance.choice([100, 200, 300, 500]))
            for group in range(groups)
        )
    )
    records = [await first_decision(space, pod) for pod in created]
    raw = [
        json.loads(
            await space.api.request("GET", f"/api/v1/namespaces/{space.namespace}/pods/{pod.metadata.name}")
        )
        for pod in created
    ]
    for pod in raw:
        pod["spec"].pop("nodeName", None)
        pod.pop("status")
    return dump, raw, records


async def assert_simulated_as_recorded(
    space: Space, directory: Path, dump: str, pods: list[dict[str, Any]], records: list[DecisionRecord]
) -> None:
    file = directory / "cluster.json"
    file.write_text(dump)
    said = await ask(
        space.cluster,
        "simulate",
        "-f",
        "-",
        "--cluster",
        str(file),
        stdin=json.dumps({"kind": "PodList", "items": pods}),
    )
    for answer, record in zip(said["pods"], records, strict=True):
        recorded = msgspec.json.decode(msgspec.json.encode(record))
        assert answer["nominatedNode"] == (record.nominated_node or None)
        # The plugin asks for fewer candidates than a simulation names; their order is the same.
        answer["candidates"] = answer["candidates"][: len(record.candidates)]
        for name in SAME_FIELDS:
            assert answer[name] == recorded.get(name, type(answer[name])()), (record.decision_id, name)
        assert without_time(answer["diagnosis"]) == without_time(recorded.get("diagnosis"))


def without_time(diagnosis: Answer | None) -> Answer | None:
    """Leave out when to ask again: the running planner says so too where its snapshot was behind."""
    return None if diagnosis is None else {k: v for k, v in diagnosis.items() if k != "retryAt"}


async def assert_replayed(space: Space, records: list[DecisionRecord]) -> None:
    for record in records:
        answer = await ask(space.cluster, "replay", record.decision_id)
        assert answer["same"], answer["differences"]


async def test_simulate_and_replay_say_what_the_planner_recorded(space: Space, tmp_path: Path) -> None:
    dump, pods, records = await decided(space, seed=1, groups=8)

    await assert_simulated_as_recorded(space, tmp_path, dump, pods, records)
    await assert_replayed(space, records)
    assert {bool(record.victims) for record in records} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + ROUNDS))
async def test_two_hundred_decisions_come_out_again(space: Space, tmp_path: Path, seed: int) -> None:
    dump, pods, records = await decided(space, seed, groups=10)

    await assert_simulated_as_recorded(space, tmp_path, dump, pods, records)
    await assert_replayed(space, records)


async def test_an_exported_decision_is_replayed_without_the_cluster(space: Space, tmp_path: Path) -> None:
    await until_recording(space.cluster)
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("small", "low", 500).on("n1"))
    (pod,) = await space.create(sized("urgent", "high", 300))
    order, _ = await outcome_of_order(space, pod)
    file = tmp_path / "decision.json"

    code, _, error = await run(space.cluster, "replay", order.order_id, "--export", str(file))
    assert code == 0, error
    again = await ask(space.cluster, "replay", "--from", str(file))
    exported = json.loads(file.read_bytes())
    exported["decision"]["victims"][0]["rule"] = "another"
    file.write_text(json.dumps(exported))
    code, output, _ = await run(space.cluster, "replay", "--from", str(file))

    assert again["same"]
    assert code == 1
    assert 'victims.0.rule: recorded "another", replayed "lower-priority"' in output


async def test_a_pod_that_is_gone_is_explained_by_its_order(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"), make_node("n2").cpu("500m"))
    await run_victims(space, sized("small", "low", 500).on("n1"), sized("other", "mid", 500).on("n2"))
    (pod,) = await space.create(sized("urgent", "high", 500))
    order, _ = await outcome_of_order(space, pod)
    await space.until_gone("small")

    answer = await ask(space.cluster, "why", "small", "-n", space.namespace)
    _, text, _ = await run(space.cluster, "why", f"{space.namespace}/small")
    _, of_order, _ = await run(space.cluster, "why", order.order_id)
    code, _, error = await run(space.cluster, "why", "nobody", "-n", space.namespace)

    (story,) = answer["takenBy"]
    assert answer["state"] == "preempted"
    assert story["order"]["orderId"] == order.order_id
    assert story["outcome"]["victims"][0]["result"] == "deleted"
    assert [one["node"] for one in story["decision"]["candidates"]] == [
        space.node_name(n) for n in ("n1", "n2")
    ]
    assert f"for:   {space.namespace}/urgent (priority 1000)" in text
    assert "rule:  lower-priority" in text
    assert f"instead: {space.node_name('n2')} without {space.namespace}/other (100)" in text
    assert f"room for {space.namespace}/urgent (priority 1000)" in of_order
    assert code == 1
    assert "no order of the last week names one as a victim" in error


async def blocked(space: Space, name: str) -> list[Answer]:
    """Ask why a pod is pending; gives the changes that would unblock it."""
    answer = await ask(space.cluster, "why", name, "-n", space.namespace)
    assert answer["pending"]["answer"]["result"] == "refused", answer["pending"]["answer"]
    return list(answer["pending"]["unblockedBy"])


async def test_a_cordon_is_told_and_lifting_it_helps(space: Space) -> None:
    groups = ["g0", "g1"]
    for group in groups:
        await space.add_nodes(grouped(f"c-{group}", group, 1000))
        await space.cluster.kubectl("cordon", space.node_name(f"c-{group}"))
    await space.create(*(asking(group, "mid", 600) for group in groups))
    await until("the scheduler has tried them", lambda: tried(space, [f"asks-{group}" for group in groups]))

    found = {group: await blocked(space, f"asks-{group}") for group in groups}

    assert [one["change"]["kind"] for one in found["g0"]] == ["uncordon", "node"]
    for number, group in enumerate(groups):
        await applied(space, group, found[group][number]["change"])
        assert await space.until_bound(f"asks-{group}")


async def tried(space: Space, names: list[str]) -> bool:
    pods = await space.pods()
    if not all(pods[name].status.conditions for name in names):
        raise NotYet("not yet")
    return True


async def applied(space: Space, group: str, change: Answer) -> None:
    """Make a change as its text says, as a person would."""
    match change["kind"]:
        case "uncordon":
            await space.cluster.kubectl("uncordon", change["object"].removeprefix("node "))
        case "node":
            like = space.short(change["then"])
            await space.add_nodes(grouped(f"{like}-more", group, 1000))
        case kind:
            pytest.fail(f"nobody has said how to apply {kind}")


async def test_nobody_is_told_anything_without_the_right_to_read(space: Space) -> None:
    pod = json.dumps({"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}})

    code, output, error = await run(space.cluster, "simulate", "-f", "-", account="evictor", stdin=pod)

    assert (code, output) == (3, "")
    assert "no permission" in error
    assert GROUP not in error
