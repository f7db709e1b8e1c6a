"""Constraints besides resources: who has to go for a port, an affinity, a spread or a claim."""

from typing import Any

import pytest

from makeway.bus.messages import Placement
from makeway.planner.plan.constraints import counting, layers
from makeway.planner.plan.constraints.tally import Allowance, Tallies
from makeway.planner.plan.request import Question
from makeway.planner.snapshot.changes import PutClaim, PutNode, PutPod, RemovePod
from makeway.planner.snapshot.records import node_record, pod_record
from makeway.planner.snapshot.volumes import ClaimRecord
from unit.planner.building import choices, planned, refused
from unit.planner.manifests import (
    HOST,
    ZONE,
    affinity,
    anti_affinity,
    claim,
    cluster,
    namespace,
    node,
    pod,
    question,
    spread,
    term,
)

WEB, DB = {"app": "web"}, {"app": "db"}
PORT_80 = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


def preemptor(**more: Any) -> Any:
    return pod("preemptor", priority=100, **more)


# ------------------------------------------------------------------------------------------ host ports


@pytest.mark.parametrize(
    ("taken", "wanted", "in_the_way"),
    [
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, False),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.1"}, True),
        ({"hostIP": "10.0.0.1"}, {}, True),
        ({}, {"hostIP": "10.0.0.1"}, True),
        ({"protocol": "UDP"}, {"protocol": "TCP"}, False),
    ],
)
def test_ports_conflict_on_one_address_or_on_all(
    taken: dict[str, str], wanted: dict[str, str], in_the_way: bool
) -> None:
    holder = pod("holder", "a", cpu="0", ports=[{**PORT_80[0], **taken}])
    snapshot = cluster(node("a"), holder)

    plan = planned(snapshot, question(preemptor(ports=[{**PORT_80[0], **wanted}])))

    assert bool(plan.candidates) == in_the_way
    assert bool(plan.unmodelled) != in_the_way


def test_a_port_that_a_nominated_pod_will_take_cannot_be_had() -> None:
    snapshot = cluster(
        node("a"), pod("low", "a", cpu="4"), pod("coming", priority=100, cpu="0", ports=PORT_80)
    )
    nominations = (Placement(namespace="default", name="coming", uid="coming", node="a"),)

    refusal = refused(snapshot, question(preemptor(ports=PORT_80), nominations=nominations))

    assert refusal.node_reasons == {layers.PORT_TAKEN: 1}


def test_a_port_whose_holder_another_order_removes_is_awaited() -> None:
    snapshot = cluster(node("a"), pod("holder", "a", ports=PORT_80), pod("low", "a"))

    plan = planned(snapshot, question(preemptor(ports=PORT_80), in_flight={"holder": "ord-1"}))

    (candidate,) = plan.candidates
    assert [one.pod.uid for one in candidate.awaited] == ["holder"]
    assert not candidate.victims


# --------------------------------------------------------------------------------------- anti-affinity


def test_a_pod_that_cannot_stand_the_preemptor_has_to_go() -> None:
    shy = pod("shy", "a", affinity=anti_affinity(term(HOST, WEB)))
    snapshot = cluster(node("a"), shy, pod("mid", "a", priority=50))

    assert choices(planned(snapshot, question(preemptor(labels=WEB)))) == [("a", {"shy"})]


def test_a_conflict_in_the_zone_is_cured_only_on_the_node_that_has_it() -> None:
    snapshot = cluster(
        node("a", zone="1"),
        node("b", zone="1"),
        node("c", zone="2"),
        pod("web", "a", labels=WEB),
        pod("low", "b", cpu="4"),
        pod("low-too", "c", cpu="4"),
    )

    plan = planned(snapshot, question(preemptor(affinity=anti_affinity(term(ZONE, WEB)))))

    assert sorted(choices(plan)) == [("a", {"web"}), ("c", {"low-too"})]


def test_an_assumed_pod_counts_in_its_zone() -> None:
    snapshot = cluster(
        node("a", zone="1"), node("b", zone="1"), pod("low", "b", cpu="4"), pod("web", labels=WEB)
    )
    assumed = (Placement(namespace="default", name="web", uid="web", node="a"),)
    asked = question(preemptor(affinity=anti_affinity(term(ZONE, WEB))), assumed=assumed)

    assert choices(planned(snapshot, asked)) == [("a", {"web"})]


@pytest.mark.parametrize(
    ("selection", "in_the_way"),
    [
        ({}, False),
        ({"namespaces": ["other"]}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, False),
        ({"namespaceSelector": {}}, True),
    ],
)
def test_a_term_means_the_namespaces_named_or_selected(selection: dict[str, Any], in_the_way: bool) -> None:
    snapshot = cluster(
        namespace("other", {"team": "x"}),
        namespace("default", {}),
        node("a"),
        pod("web", "a", labels=WEB, namespace="other"),
    )
    asked = question(preemptor(affinity=anti_affinity(term(HOST, WEB, **selection))))

    assert bool(planned(snapshot, asked).candidates) == in_the_way


# -------------------------------------------------------------------------------------------- affinity


def test_a_node_is_no_candidate_where_the_company_it_needs_would_go() -> None:
    snapshot = cluster(
        node("a"),
        node("b"),
        pod("db", "a", labels=DB, cpu="4"),
        pod("db-that-stays", "b", labels=DB, priority=200),
        pod("low", "b", cpu="3"),
    )

    plan = planned(snapshot, question(preemptor(affinity=affinity(term(HOST, DB)))))

    assert choices(plan) == [("b", {"low"})]


# ---------------------------------------------------------------------------------------------- spread


def test_too_few_domains_leave_no_slack() -> None:
    def zones(minimum: int) -> Any:
        return preemptor(labels=WEB, topologySpreadConstraints=[spread(ZONE, WEB, minDomains=minimum)])

    snapshot = cluster(
        node("a", zone="1"),
        node("b", zone="2"),
        pod("web-a", "a", labels=WEB, cpu="1"),
        pod("web-b", "b", labels=WEB, priority=200),
    )

    assert not planned(snapshot, question(zones(2))).candidates
    assert choices(planned(snapshot, question(zones(3)))) == [("a", {"web-a"})]


def test_a_tainted_node_is_a_domain_unless_taints_are_honoured() -> None:
    taint = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    snapshot = cluster(
        node("a", zone="1"), node("empty", zone="2", taints=taint), pod("web", "a", labels=WEB)
    )

    def asked(policy: str) -> Any:
        constraint = spread(ZONE, WEB, nodeTaintsPolicy=policy)
        return question(preemptor(labels=WEB, topologySpreadConstraints=[constraint]))

    assert choices(planned(snapshot, asked("Ignore"))) == [("a", {"web"})]
    assert not planned(snapshot, asked("Honor")).candidates


def test_a_label_key_narrows_what_spread_counts() -> None:
    first, second = {**WEB, "rev": "1"}, {**WEB, "rev": "2"}
    snapshot = cluster(node("a", zone="1"), node("b", zone="2"), pod("old", "a", labels=first))
    constraint = spread(ZONE, WEB, matchLabelKeys=["rev"])

    def asked(labels: dict[str, str]) -> Any:
        return question(preemptor(labels=labels, topologySpreadConstraints=[constraint]))

    assert choices(planned(snapshot, asked(first))) == [("a", {"old"})]
    assert not planned(snapshot, asked(second)).candidates


# ---------------------------------------------------------------------------------------------- claims


def test_whoever_holds_the_claim_for_one_pod_has_to_go_wherever_it_runs() -> None:
    snapshot = cluster(
        node("a"), node("b"), pod("holder", "a", volumes=[claim("data")]), pod("low", "b", cpu="4")
    )
    snapshot.apply(PutClaim.of(("default", "data"), ClaimRecord(exclusive=True)))

    plan = planned(snapshot, question(preemptor(volumes=[claim("data")])))

    assert choices(plan) == [("a", {"holder"})]


def test_a_claim_for_many_pods_is_in_no_pods_way() -> None:
    snapshot = cluster(node("a"), pod("holder", "a", volumes=[claim("data")]))

    assert not planned(snapshot, question(preemptor(volumes=[claim("data")]))).candidates


# ------------------------------------------------------------------------------------ kept between plans


def test_what_was_counted_follows_pods_that_come_go_and_change() -> None:
    snapshot = cluster(node("a"), node("b"), pod("web", "a", labels=WEB), pod("low", "b"))
    asked = question(preemptor(affinity=anti_affinity(term(HOST, WEB))))
    assert choices(planned(snapshot, asked)) == [("a", {"web"})]

    snapshot.apply(RemovePod("web"))

    snapshot.apply(PutPod(pod_record(pod("low", "b", labels=WEB))))

    assert choices(planned(snapshot, asked)) == [("b", {"low"})]


def test_a_node_that_moves_to_another_zone_counts_there() -> None:

    snapshot = cluster(
        node("a", zone="1"), node("b", zone="1"), pod("web", "a", labels=WEB), pod("low", "b", cpu="4")
    )
    asked = question(preemptor(affinity=anti_affinity(term(ZONE, WEB))))
    assert choices(planned(snapshot, asked)) == [("a", {"web"})]

    snapshot.apply(PutNode(node_record(node("b", zone="2"))))

    assert sorted(choices(planned(snapshot, asked))) == [("a", {"web"}), ("b", {"low"})]


# ------------------------------------------------------------------------------------------ how many


def test_no_pod_has_more_layers_than_are_worth_their_memory() -> None:
    keys = [f"example.com/{number:03}" for number in range(100)]
    terms = [term(key, WEB) for key in keys]
    affinities = {**affinity(*terms), **anti_affinity(*terms)}
    spreads = [spread(key, WEB) for key in keys]
    snapshot = cluster(node("a"), pod("low", "a", cpu="4", labels=WEB, affinity=anti_affinity(*terms)))
    asking = preemptor(labels=WEB, affinity=affinities, topologySpreadConstraints=spreads)

    found = counting.layers_of(snapshot, question(asking).constraints, (), Tallies().within(Allowance()))

    assert len(found.layers) == 2 * counting.MOST_KEYS
    assert found.required_affinity is not None
    assert found.required_affinity.there.shape == (counting.MOST_KEYS, snapshot.columns.nodes)


def test_spread_over_more_keys_than_are_counted_is_left_to_the_schedulers_filters() -> None:
    spreads = [spread(f"example.com/{number}", WEB) for number in range(counting.MOST_KEYS + 1)]
    snapshot = cluster(node("a"), pod("low", "a", cpu="4"))

    plan = planned(snapshot, question(preemptor(labels=WEB, topologySpreadConstraints=spreads)))

    assert choices(plan) == [("a", {"low"})]


def test_domains_are_remembered_of_so_many_labels_only() -> None:
    many = {f"example.com/{number}": "x" for number in range(1000)}
    snapshot = cluster(node("a", zone="z1", more=many), node("b", zone="z2"))
    topology, rows = snapshot.topology, snapshot.columns.nodes
    first = topology.domains(ZONE, rows).copy()

    for number in range(1000):
        topology.domains(HOST, rows)
        topology.domains(f"example.com/{number}", rows)

    assert len(topology._domains) == len(topology._values) == 256
    assert topology.count(HOST) == 2
    assert topology.count(ZONE) == 0
    assert (topology.domains(ZONE, rows) == first).all()


def test_a_tainted_zone_counts_for_spread_where_the_constraint_does_not_say_otherwise() -> None:
    taints = [{"key": "down", "effect": "NoSchedule"}]
    snapshot = cluster(
        node("a", zone="A", taints=taints),
        node("b", zone="B"),
        pod("web", "b", priority=200, cpu="1", labels=WEB),
        pod("low", "b", cpu="3"),
    )

    def asked(**more: str) -> Question:
        spreads = [spread(ZONE, WEB, **more)]
        return question(preemptor(cpu="3", labels=WEB, topologySpreadConstraints=spreads))

    assert refused(snapshot, asked()).reason == "NotEnoughRoom"
    assert choices(planned(snapshot, asked(nodeTaintsPolicy="Honor"))) == [("b", {"low"})]


@pytest.mark.parametrize(("restarts", "victim"), [("Always", "holder"), (None, "other")])
def test_a_host_port_of_a_sidecar_is_asked_for_and_that_of_another_init_container_is_not(
    restarts: str | None, victim: str
) -> None:
    init = {"name": "i", "ports": PORT_80, "restartPolicy": restarts}
    snapshot = cluster(node("a"), pod("holder", "a", ports=PORT_80), pod("other", "a", cpu="3"))

    plan = planned(snapshot, question(preemptor(cpu="1", initContainers=[init])))

    assert choices(plan) == [("a", {victim})]
