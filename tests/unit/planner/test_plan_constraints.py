"""Constraints besides resources: who has to go for a port, an affinity or a spread.

Random clusters hold all of them against kube-scheduler: tests/differential.
"""

from typing import Any

import pytest

from makeway.bus.messages import Placement
from makeway.core.k8s.selector import Selector
from makeway.planner.plan.constraints import counting, layers, tally
from makeway.planner.plan.constraints.tally import Allowance, Tallies
from makeway.planner.plan.request import Question
from makeway.planner.snapshot import bounds
from unit.planner.building import choices, planned, refused
from unit.planner.manifests import (
    HOST,
    ZONE,
    affinity,
    anti_affinity,
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


def test_all_kinds_of_members_together_have_about_as_many_layers_as_one_pod() -> None:
    """Fewer than are remembered in any case: else each attempt would work out anew what the last one has."""
    terms = [term(f"example.com/{number}", WEB) for number in range(counting.MOST_KEYS)]
    spreads = [spread(f"example.com/{number}", WEB) for number in range(counting.MOST_KEYS)]
    affinities = {**affinity(*terms), **anti_affinity(*terms)}
    kinds = [
        pod(
            f"kind-{number}",
            labels={"app": f"kind-{number}"},
            affinity=affinities,
            topologySpreadConstraints=spreads,
            ports=PORT_80,
        )
        for number in range(16)
    ]
    snapshot = cluster(node("a"), *kinds)
    asked = [question(one).constraints for one in kinds]

    found = counting.layers_of_each(snapshot, asked, (), Tallies().within(Allowance()))

    assert sum(len(one.weights) for one in found) == counting.MOST_LAYERS < tally._FEWEST
    assert not found[0].left_out
    assert set(found[-1].left_out) == {
        bounds.HOST_PORTS, bounds.POD_AFFINITY, bounds.POD_ANTI_AFFINITY, bounds.TOPOLOGY_SPREAD,
    }  # fmt: skip


def test_namespaces_are_matched_once_for_all_terms_that_select_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spaces = [namespace(f"n{number}", {"team": "a"}) for number in range(50)]
    team = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    snapshot = cluster(node("a"), *spaces)
    asking = preemptor(affinity=anti_affinity(*(term("k", {"app": f"a{one}"}, **team) for one in range(100))))
    tallies, matched, matches = Tallies(), [0], Selector.matches

    def counted(selector: Selector, labels: Any) -> bool:
        matched[0] += 1
        return matches(selector, labels)

    monkeypatch.setattr(Selector, "matches", counted)
    for _ in range(2):
        counting.layers_of(snapshot, question(asking).constraints, (), tallies.within(Allowance()))

    assert matched[0] < 300


def test_all_kinds_of_members_together_select_namespaces_in_as_many_ways_as_one_pod() -> None:
    def selecting(kind: int) -> Any:
        teams = [{"namespaceSelector": {"matchLabels": {"team": f"{kind}-{number}"}}} for number in range(10)]
        return pod(f"kind-{kind}", affinity=anti_affinity(*(term("k", WEB, **team) for team in teams)))

    snapshot = cluster(node("a"), namespace("n", {"team": "0-0"}))
    asked = [question(selecting(kind)).constraints for kind in range(3)]

    found = counting.layers_of_each(snapshot, asked, (), Tallies().within(Allowance()))

    assert [one.left_out for one in found] == [(), (), (bounds.POD_ANTI_AFFINITY,)]


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
