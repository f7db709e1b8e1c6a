"""What a pod may ask for before it is left to the scheduler's filters, and how pods are grouped."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makeway.core.k8s.affinity import Term
from makeway.core.k8s.selector import Requirement, Selector
from makeway.planner.plan import planner as plan
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.planner import planning
from makeway.planner.plan.refusal.text import NOT_OFFERED
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.snapshot import bounds, records
from makeway.planner.snapshot.changes import PutClaim, PutNode, PutPod, RemoveNode, RemovePod
from makeway.planner.snapshot.columns import BASE_RESOURCES
from makeway.planner.snapshot.records import node_record
from makeway.planner.snapshot.signatures.anti_affinity import MOST_CANDIDATES, AntiAffinityIndex
from makeway.planner.snapshot.signatures.table import PodSignature, SignatureTable
from makeway.planner.snapshot.state import Snapshot
from makeway.planner.snapshot.updates import MOST_ASKED_RESOURCES
from makeway.planner.snapshot.volumes import ClaimRecord
from unit.planner import caching
from unit.planner.building import NOW, ask, choices, make_node, make_pod, planned, refused, settle
from unit.planner.manifests import (
    HOST,
    ZONE,
    affinity,
    anti_affinity,
    claim,
    cluster,
    node,
    pod,
    question,
    spread,
    term,
)

MOST = bounds.MOST_TERMS
WEB = {"app": "web"}


def terms(number: int, **match: str) -> list[dict[str, Any]]:
    """So many terms that mean pods of these labels, each with a value of its own besides."""
    labels = match or WEB
    return [
        {
            "topologyKey": HOST,
            "labelSelector": {
                "matchLabels": labels,
                "matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"other-{index}"]}],
            },
        }
        for index in range(number)
    ]


def in_any_of(*values: str) -> dict[str, Any]:
    """Node affinity by one term a value."""
    listed = [{"matchExpressions": [{"key": "x", "operator": "In", "values": [value]}]} for value in values]
    required = {"nodeSelectorTerms": listed}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


# ---------------------------------------------------------------------------- what a preemptor asks for


@pytest.mark.parametrize(("number", "left_out"), [(MOST, ()), (MOST + 1, (bounds.POD_ANTI_AFFINITY,))])
def test_terms_of_anti_affinity_beyond_the_bound_are_left_to_verification(
    number: int, left_out: tuple[str, ...]
) -> None:
    snapshot = cluster(node("a"), pod("web", "a", priority=1, labels=WEB), pod("low", "a", cpu="3"))

    result = planned(snapshot, question(pod("P", priority=9, affinity=anti_affinity(*terms(number)))))

    assert result.left_out == left_out
    looked_at = any(victim.pod.uid == "web" for victim in result.candidates[0].victims)
    assert looked_at == (not left_out)


@pytest.mark.parametrize(
    ("spec", "left_out"),
    [
        ({"affinity": affinity(*terms(MOST + 1))}, bounds.POD_AFFINITY),
        (
            {"affinity": anti_affinity(term(HOST, {f"k{n}": "v" for n in range(17)}))},
            bounds.POD_ANTI_AFFINITY,
        ),
        (
            {"affinity": anti_affinity({**term(HOST, WEB), "namespaces": [f"n{n}" for n in range(1001)]})},
            bounds.POD_ANTI_AFFINITY,
        ),
        (
            {
                "affinity": anti_affinity(
                    *(
                        {**term(HOST, WEB), "namespaceSelector": {"matchLabels": {"t": str(n)}}}
                        for n in range(11)
                    )
                )
            },
            bounds.POD_ANTI_AFFINITY,
        ),
        ({"topologySpreadConstraints": [spread(HOST, WEB)] * (MOST + 1)}, bounds.TOPOLOGY_SPREAD),
        ({"affinity": in_any_of(*map(str, range(MOST + 1)))}, bounds.NODE_AFFINITY),
        ({"nodeSelector": {f"k{n}": "v" for n in range(17)}}, bounds.NODE_AFFINITY),
        ({"tolerations": [{"key": str(n)} for n in range(MOST + 1)]}, bounds.TOLERATIONS),
        ({"ports": [{"hostPort": n + 1} for n in range(MOST + 1)]}, bounds.HOST_PORTS),
        ({"volumes": [claim(str(n)) for n in range(MOST + 1)]}, bounds.CLAIMS),
    ],
)
def test_what_is_larger_than_the_planner_looks_at_is_left_to_verification(
    spec: dict[str, Any], left_out: str
) -> None:
    snapshot = cluster(node("a"), pod("web", "a", cpu="4", labels=WEB))

    result = planned(snapshot, question(pod("P", priority=9, **spec)))

    assert result.left_out == (left_out,)
    assert choices(result) == [("a", {"web"})]


def test_spread_is_left_to_verification_where_the_pods_own_nodes_are() -> None:
    tolerations = [{"key": str(n)} for n in range(MOST + 1)]
    asked = pod("P", priority=9, tolerations=tolerations, topologySpreadConstraints=[spread(ZONE, WEB)])

    result = planned(cluster(node("a"), pod("web", "a", cpu="4")), question(asked))

    assert result.left_out == (bounds.TOLERATIONS, bounds.TOPOLOGY_SPREAD)


# ------------------------------------------------------------------------- what pods that are there ask for


def test_an_existing_pod_with_thousands_of_terms_weighs_on_no_plan() -> None:
    large = pod("large", "a", affinity=anti_affinity(*terms(5000)))
    snapshot = cluster(node("a"), large, pod("low", "a", cpu="3"))

    result = planned(snapshot, question(pod("P", priority=9, labels=WEB)))

    assert snapshot.signatures.left_out == 1
    assert snapshot.signatures.anti_affinity.size == 1
    assert result.left_out == (bounds.EXISTING_ANTI_AFFINITY,)

    snapshot.apply(RemovePod("large"))
    assert snapshot.signatures.left_out == 0


def test_a_plan_compares_only_terms_that_name_the_preemptors_namespace_and_a_label_of_it() -> None:
    index = AntiAffinityIndex()
    for number in range(3 * MOST_CANDIDATES):
        index.acquire((_term(("app", f"app-{number}")), _term(("app", "web"), f"tenant-{number}")))

    assert index.matching("default", {}, WEB) == []
    assert index.matching("tenant-7", {}, WEB) == [_term(("app", "web"), "tenant-7")]


def test_where_too_many_terms_might_mean_a_preemptor_existing_anti_affinity_is_left_to_verification() -> None:
    shy = [
        pod(f"shy-{number}", "a", cpu="0", affinity=anti_affinity(*terms(50, app="web", tier=str(number))))
        for number in range(MOST_CANDIDATES // 50 + 1)
    ]
    snapshot = cluster(node("a"), *shy, pod("low", "a", cpu="4"))

    result = planned(snapshot, question(pod("P", priority=9, labels=WEB)))

    # Only terms that differ count, and the label that has fewest values is the same for all of them.
    assert result.left_out == (bounds.EXISTING_ANTI_AFFINITY,)
    assert choices(result) == [("a", {"low"})]


def _term(label: tuple[str, str], namespace: str = "default") -> Term:
    requirement = Requirement(label[0], "In", frozenset({label[1]}))
    return Term(HOST, frozenset({namespace}), None, Selector((requirement,)))


# -------------------------------------------------------------------------------------------- grouping

OWN_LABELS = (
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
    "spark-exec-id",
)


@pytest.mark.parametrize("key", OWN_LABELS)
def test_labels_and_claims_that_no_selector_asks_for_make_no_kind_of_each_pod(key: str) -> None:
    pods = [
        pod(f"p{number}", "a", cpu="0", labels={**WEB, key: str(number)}, volumes=[claim(f"data-{number}")])
        for number in range(200)
    ]
    snapshot = cluster(node("a"), *pods, pod("low", "a", cpu="4"))
    own = pod("P", priority=9, labels={**WEB, key: "x"}, topologySpreadConstraints=[spread(HOST, WEB)])

    planned(snapshot, question(own))

    assert len(snapshot.signatures) == 2


def test_a_label_that_a_selector_asks_for_tells_kinds_apart() -> None:
    pods = [pod(f"p{number}", "a", labels={"own": str(number)}) for number in range(4)]
    snapshot = cluster(node("a"), *pods)
    assert len(snapshot.signatures) == 1

    result = planned(
        snapshot, question(pod("P", priority=9, affinity=anti_affinity(term(HOST, {"own": "2"}))))
    )

    assert len(snapshot.signatures) == 4
    assert choices(result) == [("a", {"p2"})]


def test_a_claim_that_becomes_exclusive_tells_its_pod_apart() -> None:
    users = [pod(f"p{number}", "a", volumes=[claim(f"data-{number}")]) for number in range(4)]
    snapshot = cluster(node("a"), *users)
    assert len(snapshot.signatures) == 1

    snapshot.apply(PutClaim.of(("default", "data-2"), ClaimRecord(exclusive=True)))

    assert len(snapshot.signatures) == 2
    asked = question(pod("P", priority=9, volumes=[claim("data-2")]))
    assert choices(planned(snapshot, asked)) == [("a", {"p2"})]

    snapshot.apply(PutClaim.of(("default", "data-2"), ClaimRecord(exclusive=False)))
    assert len(snapshot.signatures) == 1


def in_chunks(pods: int) -> Snapshot:
    snapshot = Snapshot(chunk=1)
    at_once = cluster(node("a"), *(pod(f"p{n}", "a", labels={"own": str(n)}) for n in range(pods)))
    for record in (*at_once.pods.values(),):
        snapshot.apply(PutPod(record))
    snapshot.apply(PutNode(node_record(node("a"))))
    settle(snapshot)
    return snapshot


def test_while_pods_are_being_grouped_by_a_label_its_constraint_is_left_to_verification() -> None:
    snapshot = in_chunks(4)
    asked = question(pod("P", priority=9, affinity=anti_affinity(term(HOST, {"own": "2"}))))

    meanwhile = planned(snapshot, asked)
    assert meanwhile.left_out == (bounds.POD_ANTI_AFFINITY,)
    assert not snapshot.pending_updates.pending  # it plans on
    settle(snapshot)

    assert choices(planned(snapshot, asked)) == [("a", {"p2"})]
    assert planned(snapshot, asked).left_out == ()


def test_a_label_asked_for_while_pods_are_being_grouped_is_told_apart_after_them() -> None:
    snapshot = in_chunks(4)
    first, second = frozenset({"own"}), frozenset({"other"})

    assert not snapshot.use_label_keys(first)
    snapshot.upkeep.apply_chunk()
    assert not snapshot.use_label_keys(second)
    while snapshot.upkeep.pending and not snapshot.use_label_keys(first):
        assert not snapshot.use_label_keys(second)
        snapshot.upkeep.apply_chunk()
    settle(snapshot)

    assert snapshot.use_label_keys(first | second)


def test_the_label_that_was_not_asked_for_longest_is_given_up() -> None:
    snapshot = cluster(*(pod(f"p{n}", labels={"own": str(n), "mine": str(n)}) for n in range(3)))
    snapshot.use_label_keys(frozenset({"own"}))
    assert len(snapshot.signatures) == 3

    for number in range(100):
        assert snapshot.use_label_keys(frozenset({f"key-{number}"}))
    assert len(snapshot.signatures) == 1

    assert snapshot.use_label_keys(frozenset({"own"}))
    assert len(snapshot.signatures) == 3


# ------------------------------------------------------------------- the same as matching one by one

LABELS = st.dictionaries(st.sampled_from(["app", "own", "tier"]), st.sampled_from(["a", "b", "c"]))
REQUIREMENTS = st.builds(
    lambda key, operator, values: Requirement(
        key, operator, frozenset(values) if operator in ("In", "NotIn") else frozenset()
    ),
    st.sampled_from(["app", "own", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.sets(st.sampled_from("abcdefg"), min_size=1),
)
SELECTORS = st.one_of(
    st.none(), st.builds(lambda some: Selector(tuple(some)), st.lists(REQUIREMENTS, max_size=3))
)
TERMS = st.builds(
    Term,
    st.sampled_from([HOST, ZONE]),
    st.frozensets(st.sampled_from([*"uvwxyz"])),
    st.one_of(st.none(), st.just(Selector(())), SELECTORS),
    SELECTORS,
)
SIGNATURES = st.builds(
    lambda namespace, labels, terms, terminating: PodSignature(
        namespace, tuple(sorted(labels.items())), (), tuple(terms), (), terminating
    ),
    st.sampled_from("uvw"),
    LABELS,
    st.lists(TERMS, max_size=2),
    st.booleans(),
)


@given(st.lists(SIGNATURES, max_size=12), st.data())
def test_terms_match_signatures_as_one_by_one(signatures: list[PodSignature], data: st.DataObject) -> None:
    table = SignatureTable(set())
    table.use_keys(frozenset({"app", "own", "tier"}))
    held = [(one, table.acquire(one)) for one in signatures]
    for index in sorted(data.draw(st.sets(st.integers(0, max(len(held) - 1, 0)))), reverse=True):
        if held:
            table.release(held.pop(index)[1])
    numbers = np.array(sorted({number for _, number in held}), np.int64)
    own = data.draw(TERMS).resolved(
        lambda selector: frozenset(name for name in "uvw" if selector.matches({"app": name}))
    )
    namespace, labels = data.draw(st.sampled_from("uvw")), data.draw(LABELS)

    meant = set(table.selected_by(own, numbers).tolist())
    found = table.anti_affinity.matching(namespace, {"app": "a"}, labels)

    assert meant == {number for one, number in held if own.matches(one.namespace, None, dict(one.labels))}
    there = {term for one, _ in held for term in one.anti_affinity}
    assert found is not None
    assert len(found) == len(set(found))
    assert set(found) == {one for one in there if one.matches(namespace, {"app": "a"}, labels)}


# ------------------------------------------------------------------------------------------- in chunks


def test_a_plan_that_pauses_for_its_constraints_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    shy = [
        pod(
            f"p{n}",
            f"n{n % 5}",
            priority=n % 3,
            labels={"app": f"a{n % 7}"},
            affinity=anti_affinity(*terms(2)),
        )
        for n in range(20)
    ]
    asked = question(
        pod(
            "P",
            priority=9,
            cpu="3",
            labels=WEB,
            affinity={**anti_affinity(*terms(20, app="a1"), term(ZONE, {"app": "a2"}))},
            topologySpreadConstraints=[spread(ZONE, {"app": "a3"}), spread(HOST, {"app": "a4"})],
        )
    )
    nodes = [node(f"n{n}", zone=str(n % 2)) for n in range(5)]
    at_once = planned(cluster(*nodes, *shy), asked)

    monkeypatch.setattr(plan, "CHUNK_STEPS", 10)
    steps: list[Plan | PlanRefusal | None] = list(planning(cluster(*nodes, *shy), asked, NOW, PlanCache()))

    assert steps[:-1] == [None] * (len(steps) - 1)
    assert len(steps) > 5
    assert steps[-1] == at_once


def test_nothing_of_a_large_pod_is_kept_for_those_that_come_after() -> None:
    known = records.PodRecords()

    known.record(pod("large", affinity=anti_affinity(*terms(5000))))

    assert not known._alike
    assert not known._signatures
    assert not known._requests._known


def test_what_is_kept_of_pods_for_those_that_come_after_is_bounded_by_its_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records, "_REMEMBERED_BYTES", 20_000)
    monkeypatch.setattr(records, "_SIGNED_BYTES", 20_000)
    known = records.PodRecords()

    for number in range(100):
        labels = {f"key-{index}": f"{number}" for index in range(100)}
        known.record(pod(f"p{number}", labels=labels, namespace=f"n{number}"))

    assert 0 < sum(len(look) for look, _ in known._alike.values()) <= 20_000
    assert 0 < len(known._signatures) < 20


@pytest.mark.parametrize("what", ["labels", "claims", "requests"])
def test_a_large_pod_that_is_gone_is_forgotten(what: str) -> None:
    names = [f"name-{number}" for number in range(1000)]
    volumes = [{"persistentVolumeClaim": {"claimName": name}} for name in names]
    asked = {"requests": {f"example.com/{name}": "1" for name in names}}
    parts: dict[str, dict[str, Any]] = {
        "labels": {"labels": dict.fromkeys(names, "x")},
        "claims": {"volumes": volumes},
        "requests": {"containers": [{"name": "c", "resources": asked}]},
    }
    snapshot = cluster(node("a"), pod("small", "a"), pod("large", "a", **parts[what]))

    snapshot.apply(RemovePod("small"))
    snapshot.apply(RemovePod("large"))

    assert [*snapshot.departures] == ["small"]
    assert not any(one.labels or one.claims for one, _ in snapshot.signatures._reduced.values())
    assert all(len(one) <= 2 for one, _ in snapshot.columns._vectors.values())


def test_a_constraint_whose_label_is_new_may_stand_beside_one_that_was_worked_out_before() -> None:
    shy = pod("shy", "a", cpu="0", affinity=anti_affinity(term(HOST, WEB)))
    there = [pod(f"p{n}", "a", cpu="0", labels={"own": str(n)}) for n in range(100)]
    asked = pod("P", priority=9, labels=WEB, topologySpreadConstraints=[spread(HOST, {"own": "7"})])

    result = planned(cluster(node("a"), shy, *there), question(asked))

    assert choices(result) == [("a", {"shy"})]


# ------------------------------------------------------------------------------------------ resources


def gpus(number: int, *, pods: int, chunk: int | None = None) -> Snapshot:
    """A node that offers one of each of so many resources, and pods that have the first of them."""
    offered = {f"x.io/{index}": 1 for index in range(number)}
    snapshot = Snapshot(chunk=chunk)
    snapshot.apply(PutNode(make_node("a", **offered)))
    for index in range(pods):
        requests = {"cpu": 1, "x.io/0": 1} if index == 0 else {"cpu": 1}
        snapshot.apply(PutPod(make_pod(f"p{index}", "a", requests=requests)))
    settle(snapshot)
    return snapshot


def wanting(*names: str) -> Question:
    return ask(make_pod("P", "", 9, requests={"cpu": 1, **dict.fromkeys(names, 1)}))


def test_a_resource_has_a_layer_once_a_preemptor_asks_for_it() -> None:
    snapshot = gpus(1000, pods=3)
    assert set(snapshot.columns.resources) == set(BASE_RESOURCES)

    assert choices(planned(snapshot, wanting("x.io/0"))) == [("a", {"p0"})]
    assert set(snapshot.columns.resources) == {*BASE_RESOURCES, "x.io/0"}

    snapshot.apply(PutNode(make_node("b", **{"x.io/0": 1})))
    assert planned(snapshot, wanting("x.io/0")).unmodelled_total == 0
    assert int(snapshot.columns.allocatable[-1, snapshot.rows["b"]]) == 1


def test_beyond_the_bound_a_resource_is_left_to_verification() -> None:
    snapshot = gpus(100, pods=3)
    for index in range(1, MOST_ASKED_RESOURCES + 1):
        caching.plan(snapshot, wanting(f"x.io/{index}"), NOW)

    result = planned(snapshot, wanting("x.io/0"))

    assert len(snapshot.columns.resources) == len(BASE_RESOURCES) + MOST_ASKED_RESOURCES
    assert result.left_out == (bounds.RESOURCES,)
    assert [one.node for one in result.unmodelled] == ["a"]


def test_while_pods_are_being_counted_for_a_resource_it_is_left_to_verification() -> None:
    snapshot = gpus(1, pods=3, chunk=1)

    assert planned(snapshot, wanting("x.io/0")).left_out == (bounds.RESOURCES,)
    assert not snapshot.pending_updates.pending  # it plans on
    settle(snapshot)

    assert choices(planned(snapshot, wanting("x.io/0"))) == [("a", {"p0"})]


def test_a_resource_that_no_node_offers_any_more_is_not_offered() -> None:
    snapshot = gpus(1, pods=1)
    asked = wanting("hugepages-2Mi")
    snapshot.apply(PutNode(make_node("b", **{"hugepages-2Mi": 1})))
    assert caching.plan(snapshot, asked, NOW).scope.nodes_total == 2

    snapshot.apply(PutNode(make_node("b")))
    assert refused(snapshot, asked).reason == NOT_OFFERED
    snapshot.apply(PutNode(make_node("b", **{"hugepages-2Mi": 1})))
    snapshot.apply(RemoveNode("b"))
    assert refused(snapshot, asked).reason == NOT_OFFERED
