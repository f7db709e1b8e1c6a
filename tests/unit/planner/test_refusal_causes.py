"""Refusals name what keeps a pod out where that is on no single node: a domain's pods, a guarantee."""

from makeway.core.queues.parsing import parse_queues
from makeway.planner.offline.results import SimulatedPod
from unit.planner.offline_building import Object, node, pod, simulated, world

TRAIN = {"job": "train"}


def apart(labels: dict[str, str], *, key: str = "rack") -> Object:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def rack(name: str) -> Object:
    return node(name, labels={"rack": "r"})


def message(answer: SimulatedPod) -> str:
    assert answer.diagnosis is not None
    assert answer.result == "refused"
    return answer.diagnosis.message


def test_a_rack_that_a_pod_on_another_node_keeps_is_named_with_the_pod() -> None:
    cluster = world(
        rack("r1"),
        rack("r2"),
        pod("x", "r1", priority=0, labels=TRAIN),
        pod("full", "r1", cpu="3", priority=2000),
    )

    (answer,) = simulated(cluster, pod("new", cpu="2", priority=100, labels=TRAIN, affinity=apart(TRAIN)))

    assert answer.diagnosis is not None
    assert answer.diagnosis.reason == "NotEnoughRoom"
    assert (
        "of 2 potential nodes 1 are kept by pods elsewhere in their domain, and 1 have too little "
        "room even without such pods; nearest: r2 would have room, but rack r is kept by default/x "
        "(Pod anti-affinity by rack)"
    ) in message(answer)
    assert answer.nearest[0].node == "r2"


def test_pods_that_keep_a_rack_by_their_own_anti_affinity_are_named_too() -> None:
    cluster = world(rack("r1"), rack("r2"), pod("x", "r1", cpu="4", priority=2000, affinity=apart(TRAIN)))

    (answer,) = simulated(cluster, pod("new", priority=100, labels=TRAIN))

    assert "rack r is kept by default/x (Existing pods' anti-affinity by rack)" in message(answer)


def test_a_full_domain_of_a_topology_spread_names_the_pods_that_count() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "rack",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": TRAIN},
    }
    cluster = world(
        rack("r1"),
        rack("r2"),
        node("s1", labels={"rack": "s"}),
        *(pod(f"x{n}", "r1", priority=2000, labels=TRAIN) for n in range(5)),
        pod("full", "s1", cpu="4", priority=2000),
    )

    (answer,) = simulated(
        cluster, pod("new", cpu="2", priority=100, labels=TRAIN, topologySpreadConstraints=[spread])
    )

    assert (
        "r2 would have room, but rack r is kept by default/x0 and default/x1 and default/x2 and 2 other pods "
        "of its namespace (Topology spread over rack)"
    ) in message(answer)


def test_pods_of_other_namespaces_are_counted_as_a_tenant_reads_the_sentence() -> None:
    cluster = world(
        rack("r1"), rack("r2"), pod("secret", "r1", cpu="4", priority=2000, namespace="other", labels=TRAIN)
    )
    term = {"labelSelector": {"matchLabels": TRAIN}, "topologyKey": "rack", "namespaces": ["other"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    (answer,) = simulated(cluster, pod("new", cpu="2", priority=100, affinity=affinity))

    assert "rack r is kept by 1 pod of other namespaces" in message(answer)
    assert "secret" not in message(answer)
    assert "each of 1 potential nodes" not in message(answer)


QUEUES = """\
partitions:
- name: default
  queues:
  - name: root
    queues:
    - {name: a, resources: {guaranteed: {vcore: 2}}}
    - {name: b, resources: {guaranteed: {vcore: 2}}}
"""


def below_guarantee(asked: str, queues: str = QUEUES, queue: str = "root.b") -> str:
    running = [pod(f"a{n}", "n", priority=0, labels={"queue": "root.a"}) for n in range(4)]
    cluster = world(node("n"), *running)
    cluster.adopt(parse_queues(queues, "queues.yaml").tree, "rev")
    (answer,) = simulated(cluster, pod("new", cpu=asked, priority=0, labels={"queue": queue}))
    return message(answer)


def test_a_queue_below_its_guarantee_is_told_that_a_guarantee_reclaims_nothing() -> None:
    assert (
        "queue root.b uses cpu 0 of its guaranteed 2, which keeps its own pods and reclaims nothing from "
        "queues above theirs: of those only pods of lower priority go"
    ) in below_guarantee("1")


def test_a_queue_above_its_guarantee_is_told_why_reclaim_takes_nothing_back() -> None:
    on = QUEUES.replace("  queues:", "  preemption: {enabled: true}\n  queues:", 1)
    told = below_guarantee("1", on, queue="root.a")

    assert told.endswith(
        "; queue root.a uses cpu 4 of its guaranteed 2, too much to take anything back for it"
    )
    assert "queue" not in below_guarantee("1", queue="root.a")


def test_a_pod_that_asks_for_more_than_its_queue_is_guaranteed_is_not_told_so() -> None:
    assert "guaranteed" not in below_guarantee("3")
