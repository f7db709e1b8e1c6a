"""Which pods are exempt, in the columns: as the policy and the classes are now, pod by pod."""

from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.facts import PodFacts
from makeway.planner.snapshot.changes import (
    Enforce,
    PutPod,
    PutPriorityClass,
    PutTolerationRecord,
    RemovePod,
    RemovePriorityClass,
)
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import (
    HIGH,
    LOW,
    MID,
    ask,
    choices,
    make_class,
    make_pod,
    make_snapshot,
    planned,
    refused,
    scheduled,
)

URGENT = make_pod("P", priority=HIGH, size=300)
PROTECT_DEFAULT = Policy(protection=Protection(namespaces=("default",)))


def two_nodes(*classes: object, policy: Policy | None = None) -> Snapshot:
    """a: one pod of class steady, scheduled 10 s ago; b: one pod of higher priority without a class."""
    return make_snapshot(
        ["a", "b"],
        [make_pod("steady", "a", LOW, 400, facts=scheduled(10, "steady")), make_pod("plain", "b", MID, 400)],
        classes=classes,  # type: ignore[arg-type]
        policy=policy,
    )


def chosen(snapshot: Snapshot) -> list[str]:
    return [node for node, _ in choices(planned(snapshot, ask(URGENT)))]


def test_a_changed_class_counts_at_once_for_pods_that_run_already() -> None:
    snapshot = two_nodes(make_class("steady"))

    snapshot.apply(PutPriorityClass(make_class("steady", HIGH + 1, -1)))
    assert chosen(snapshot) == ["b"]

    snapshot.apply(PutPriorityClass(make_class("steady", HIGH, -1)))
    assert chosen(snapshot) == ["a", "b"]


def test_a_class_that_goes_exempts_its_pods_no_more_unless_it_is_on_record() -> None:
    steady = make_class("steady", HIGH + 1, -1)
    snapshot = two_nodes(steady)

    snapshot.apply(RemovePriorityClass("steady"))
    assert chosen(snapshot) == ["a", "b"]

    snapshot.apply(PutTolerationRecord((steady,)))
    assert chosen(snapshot) == ["b"]

    snapshot.apply(PutPriorityClass(make_class("steady")))
    assert chosen(snapshot) == ["a", "b"]


def test_a_class_may_exempt_pods_while_it_is_annotated_or_gone_with_pods_left() -> None:
    snapshot = two_nodes(make_class("steady", HIGH + 1, 60), make_class("calm", HIGH + 1, 60))
    known = snapshot.exemptions
    snapshot.apply(
        PutTolerationRecord((make_class("steady", HIGH + 1, 60), make_class("calm", HIGH + 1, 60)))
    )
    assert sorted(known.tolerating_classes()) == ["calm", "steady"]

    snapshot.apply(RemovePriorityClass("steady"))
    snapshot.apply(RemovePriorityClass("calm"))
    assert known.tolerating_classes() == ["steady"]

    snapshot.apply(PutTolerationRecord(()))
    assert known.tolerating_classes() == []

    snapshot.apply(PutTolerationRecord(None))
    assert known.tolerating_classes() == ["steady"]


def test_a_refusal_for_a_class_that_is_gone_depends_on_the_record_too() -> None:
    snapshot = make_snapshot(["a"], [make_pod("steady", "a", LOW, 400, facts=scheduled(10, "steady"))])
    snapshot.apply(PutTolerationRecord((make_class("steady", HIGH + 1, -1),)))

    assert refused(snapshot, ask(URGENT)).depends_on == (
        ("ConfigMap", "", "makeway-tolerations"),
        ("PriorityClass", "", "steady"),
    )


def test_a_toleration_on_record_ends_when_it_said() -> None:
    snapshot = two_nodes()

    snapshot.apply(PutTolerationRecord((make_class("steady", HIGH + 1, 11),)))
    assert chosen(snapshot) == ["b"]

    snapshot.apply(PutTolerationRecord((make_class("steady", HIGH + 1, 9),)))
    assert chosen(snapshot) == ["a", "b"]


def test_a_change_of_a_class_touches_only_the_nodes_of_its_pods() -> None:
    snapshot = two_nodes(make_class("steady"))
    before = snapshot.changed.copy()

    snapshot.apply(PutPriorityClass(make_class("steady", HIGH + 1, -1)))

    touched = [snapshot.names[row] for row in range(2) if snapshot.changed[row] != before[row]]
    assert touched == ["a"]


def test_a_pod_that_left_is_forgotten_under_its_class() -> None:
    snapshot = two_nodes(make_class("steady"))
    snapshot.apply(RemovePod("steady"))

    snapshot.apply(PutPriorityClass(make_class("steady", HIGH + 1, -1)))

    assert chosen(snapshot) == ["b"]


def test_a_new_policy_counts_for_all_pods_at_once_and_so_does_its_end() -> None:
    snapshot = two_nodes(make_class("steady"))

    snapshot.apply(Enforce(PROTECT_DEFAULT, "rev-2"))
    assert refused(snapshot, ask(URGENT)).reason == "PodsSpared"

    snapshot.apply(Enforce(Policy(), "rev-3"))
    assert chosen(snapshot) == ["a", "b"]


def test_a_pod_that_comes_under_a_policy_is_exempt_by_it() -> None:
    snapshot = make_snapshot(["a"], policy=Policy(protection=Protection(never_evict_namespaces=("*",))))

    snapshot.apply(PutPod(make_pod("kept", "a", size=400, facts=PodFacts(never_evict=True))))

    refused(snapshot, ask(URGENT))


def test_an_exemption_moves_with_its_pod_when_a_more_important_one_comes_and_goes() -> None:
    snapshot = make_snapshot(
        ["a"],
        [make_pod("kept", "a", LOW, 200, facts=PodFacts(mirror=True)), make_pod("plain", "a", LOW, 200)],
    )
    snapshot.apply(PutPod(make_pod("above", "a", MID, 100)))
    snapshot.apply(RemovePod("above"))

    result = planned(snapshot, ask(URGENT))

    assert choices(result) == [("a", {"plain"})]
