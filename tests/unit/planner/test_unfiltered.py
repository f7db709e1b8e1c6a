"""Plans for pods that no filter was asked about: the columns say where they fit, and where removing helps."""

from dataclasses import replace

from makeway.bus.plan import NodeSelection
from makeway.core.k8s.nodes import RequiredNodes
from makeway.core.k8s.unmodelled import ONLY_FILTERS_KNOW
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.plan.unfiltered import FITS, answer, answering
from makeway.planner.snapshot.changes import Change, PutClaim, PutStorageClass
from makeway.planner.snapshot.state import Snapshot
from makeway.planner.snapshot.volumes import ClaimRecord
from narrowing import as_a
from unit.planner.building import HIGH, LOW, NOW, XL, L, S, ask, make_node, make_pod, make_snapshot


def asked(snapshot: Snapshot, question: Question) -> Plan | PlanRefusal:
    return answer(snapshot, replace(question, nodes=NodeSelection()), NOW, PlanCache())


def preemptor(size: int = L) -> Question:
    return ask(make_pod("p", priority=HIGH, size=size))


def test_where_it_fits_nothing_is_planned() -> None:
    snapshot = make_snapshot(["n1", "n2"], [make_pod("a", "n1", LOW, XL)])

    found = as_a(PlanRefusal, asked(snapshot, preemptor()))

    assert found.reason == FITS
    assert "node n2" in found.message


def test_room_is_made_where_it_helps() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)])

    found = as_a(Plan, asked(snapshot, preemptor()))

    assert [pod.pod.uid for pod in found.candidates[0].victims] == ["a"]
    assert found.scope.nodes_potential == 1


def test_nodes_that_no_removal_helps_are_counted_by_reason() -> None:
    snapshot = make_snapshot([make_node("small", 200), "n1"], [make_pod("a", "n1", HIGH, XL)])

    found = as_a(PlanRefusal, asked(snapshot, preemptor()))

    assert found.node_reasons["Node too small: cpu"] == 1


def test_a_nomination_takes_the_room_that_a_pod_would_fit_in() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("q", priority=HIGH, size=L), make_pod("a", "n1", LOW, S)])
    question = ask(make_pod("p", priority=HIGH, size=L), nominations=[("q", "n1")])

    found = as_a(PlanRefusal, asked(snapshot, question))

    assert found.reason != FITS


def test_what_is_beyond_the_planners_bounds_is_refused() -> None:
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)])
    question = preemptor()
    large = replace(question, constraints=replace(question.constraints, left_out=("tolerations",)))

    found = as_a(PlanRefusal, asked(snapshot, large))

    assert found.reason == ONLY_FILTERS_KNOW
    assert "tolerations" in found.message


def with_claim() -> Question:
    question = preemptor()
    return replace(question, constraints=replace(question.constraints, namespace="default", binds=("data",)))


def claimed(*changes: Change) -> Plan | PlanRefusal:
    """Ask about a pod with claim `data`, after these changes, on a node of which removing a pod helps."""
    snapshot = make_snapshot(["n1"], [make_pod("a", "n1", LOW, XL)])
    for change in changes:
        snapshot.apply(change)
    return asked(snapshot, with_claim())


DATA = ("default", "data")


def test_no_pod_goes_for_one_whose_claim_has_no_volume_and_gets_none_with_a_node() -> None:
    missing = claimed()
    immediate = claimed(PutStorageClass("disk", RequiredNodes()), PutClaim.of(DATA, ClaimRecord("", "disk")))
    without_a_class = claimed(PutClaim.of(DATA, ClaimRecord("", "no-such-class")))

    for found in (missing, immediate, without_a_class):
        assert isinstance(found, PlanRefusal)
        assert found.reason == ONLY_FILTERS_KNOW
        assert "PersistentVolumeClaim data, which has no volume" in found.message


def test_room_is_made_for_one_whose_claim_has_a_volume_or_waits_for_its_first_consumer() -> None:
    bound = claimed(PutClaim.of(DATA, ClaimRecord("pv", "disk")))
    waiting = claimed(
        PutStorageClass("disk", RequiredNodes(), waits=True), PutClaim.of(DATA, ClaimRecord("", "disk"))
    )

    assert isinstance(bound, Plan)
    assert isinstance(waiting, Plan)


def test_a_question_that_names_nodes_is_answered_as_before() -> None:
    snapshot = make_snapshot(["n1", "n2"], [make_pod("a", "n1", LOW, XL), make_pod("b", "n2", LOW, XL)])

    found = as_a(
        Plan, answer(snapshot, ask(make_pod("p", priority=HIGH, size=L), nodes=["n2"]), NOW, PlanCache())
    )

    assert [candidate.node for candidate in found.candidates] == ["n2"]


def test_an_empty_cluster_is_refused() -> None:
    assert isinstance(asked(make_snapshot([]), preemptor()), PlanRefusal)


def test_many_nodes_are_judged_with_pauses() -> None:
    names = [f"n{number}" for number in range(9000)]
    snapshot = make_snapshot(names, [make_pod(f"a-{name}", name, LOW, XL) for name in names])

    steps = list(answering(snapshot, replace(preemptor(), nodes=NodeSelection()), NOW, PlanCache()))

    assert steps.count(None) >= 3
    assert isinstance(steps[-1], Plan)
    assert steps[-1].candidates_total == 9000
