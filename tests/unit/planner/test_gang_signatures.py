"""Plans for gangs whose label keys no plan has asked for: signatures are numbered anew for the first one."""

import random
from typing import Any

import numpy as np
import pytest

from makeway.core.k8s.objects import Node, Pod
from makeway.planner.plan.constraints.counting import layers_of
from makeway.planner.plan.constraints.tally import Allowance, StaleSignaturesError, Tallies
from makeway.planner.plan.gang.planner import plan_gang, planning_gang
from makeway.planner.plan.gang.question import GangClass, GangQuestion
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.result import GangPlan, PlanRefusal
from makeway.planner.snapshot.changes import PutNode, PutPod, RemovePod
from makeway.planner.snapshot.columns import SIGNATURE
from makeway.planner.snapshot.pending_updates import CHUNK
from makeway.planner.snapshot.records import node_record, pod_record
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import NOW, settle
from unit.planner.manifests import HOST, ZONE, anti_affinity, cluster, node, pod, question, spread, term
from unit.planner.offline_building import node as node_manifest
from unit.planner.offline_building import pod as pod_manifest
from unit.planner.offline_building import world
from unit.planner.test_simulated_groups import group, simulated

RACK = "rack"


def drawn(seed: int) -> tuple[list[Node], list[Pod], list[list[Pod]]]:
    """Return nodes, pods on them, and the members of each class, which all have a label key of their own."""
    random_ = random.Random(seed)
    names = [f"n{number}" for number in range(random_.randint(3, 6))]
    nodes = [
        node(name, zone=random_.choice("xy"), more={RACK: random_.choice("12")}, taints=[]) for name in names
    ]
    others = [
        pod(
            f"p{number}",
            random_.choice(names),
            priority=random_.choice((0, 10, 1000)),
            labels={f"job{random_.randrange(3)}": random_.choice(("train", "other"))},
        )
        for number in range(2 * len(names))
    ]
    classes = []
    for cls in range(random_.randint(1, 3)):
        own = {f"job{cls}": "train"}
        rule: dict[str, Any] = random_.choice(
            [
                {"topologySpreadConstraints": [spread(random_.choice((HOST, ZONE)), own)]},
                {"affinity": anti_affinity(term(random_.choice((HOST, RACK)), own))},
                {"affinity": anti_affinity(term(HOST, {f"job{(cls + 1) % 3}": "train"}))},
            ]
        )
        count = random_.randint(1, 3)
        classes.append([pod(f"m{cls}-{one}", priority=100, labels=own, **rule) for one in range(count)])
    return nodes, others, classes


def made(nodes: list[Node], pods: list[Pod], classes: list[list[Pod]], chunk: int | None) -> Snapshot:
    snapshot = Snapshot(chunk=chunk)
    for one in nodes:
        snapshot.apply(PutNode(node_record(one)))
    for manifest in [*pods, *(member for members in classes for member in members)]:
        snapshot.apply(PutPod(pod_record(manifest)))
    return snapshot


def asked(classes: list[list[Pod]]) -> GangQuestion:
    of_classes = tuple(GangClass(question(members[0]), len(members)) for members in classes)
    return GangQuestion("default/gang", of_classes, sum(map(len, classes)))


def told(found: GangPlan | PlanRefusal) -> Any:
    if isinstance(found, PlanRefusal):
        return found.reason, found.placeable, found.message
    return found.placements, sorted(one.pod.uid for one in found.victims), found.price


@pytest.mark.parametrize("chunk", [None, CHUNK, 3])
@pytest.mark.parametrize("seed", range(12))
def test_the_first_plan_of_a_gang_is_that_of_one_that_knew_its_keys(seed: int, chunk: int | None) -> None:
    nodes, pods, classes = drawn(seed)
    before = made(nodes, pods, classes, None)
    before.use_label_keys(frozenset(f"job{number}" for number in range(3)))
    expected = plan_gang(before, asked(classes), NOW)
    assert not expected.left_out
    snapshot, cache = made(nodes, pods, classes, chunk), PlanCache()

    found: GangPlan | PlanRefusal | None = None
    for step in planning_gang(snapshot, asked(classes), NOW, cache):
        found = step
        snapshot.upkeep.apply_chunk()
    assert found is not None
    if found.left_out:
        settle(snapshot)
        found = plan_gang(snapshot, asked(classes), NOW, cache)

    assert not found.left_out
    assert told(found) == told(expected)


def test_members_count_for_their_own_spread_in_the_first_plan() -> None:
    zones = {name: {ZONE: f"z{turn}"} for turn, name in enumerate("ab")}
    held = world(
        *(node_manifest(name, labels=labels) for name, labels in zones.items()),
        *(pod_manifest(f"old-{name}", name, cpu="4", priority=0) for name in "ab"),
    )
    own = {"job": "train"}
    pods = [
        pod_manifest(
            f"train-{number}",
            cpu="1",
            priority=100,
            labels=own,
            topologySpreadConstraints=[spread(ZONE, own)],
            schedulingGroup={"podGroupName": "train"},
        )
        for number in range(2)
    ]

    answer = simulated(held, group(priority=100), pods)

    assert sorted(str(one.node) for one in answer.members) == ["a", "b"]
    assert len(answer.victims) == 2


def test_what_was_weighed_before_signatures_were_numbered_anew_is_not_used() -> None:
    labels = {"job": "train"}
    manifest = pod("m", priority=100, labels=labels, affinity=anti_affinity(term(HOST, labels)))
    snapshot = cluster(node("a"), pod("p", "a", labels={"job": "train", "team": "x"}), manifest)
    tallies = Tallies().within(Allowance())
    layer = layers_of(snapshot, question(manifest).constraints, (), tallies).layers[0]
    assert layer.use.total(snapshot, (snapshot.pods["p"],)) == 1

    snapshot.use_label_keys(frozenset({"team"}))

    with pytest.raises(StaleSignaturesError, match="serial"):
        layer.use.total(snapshot, (snapshot.pods["p"],))
    with pytest.raises(StaleSignaturesError, match="serial"):
        layer.use.of(snapshot.columns.cells[SIGNATURE])


def test_a_number_that_is_anothers_by_now_counts_nothing_after_a_pause() -> None:
    labels = {"job": "train"}
    manifest = pod("m", priority=100, labels=labels, affinity=anti_affinity(term(HOST, labels)))
    snapshot = cluster(node("a"), manifest, pod("p", "a", labels={"job": "other"}))
    own = {**labels, "app": "x"}
    snapshot.apply(PutPod(pod_record(pod("q", "a", labels=own))))
    tallies = Tallies().within(Allowance())
    layer = layers_of(snapshot, question(manifest).constraints, (), tallies).layers[0]
    number = snapshot.signature("q")
    assert layer.use.as_known(np.array([number])).tolist() == [1]

    snapshot.apply(RemovePod("q"))
    snapshot.apply(PutPod(pod_record(pod("r", "a", labels={"job": "other", "app": "y"}))))

    assert snapshot.signature("r") == number
    assert layer.use.as_known(snapshot.columns.signatures(np.array([0]))[0]).tolist() == [0, 0]
