"""What a plan of a moment ago puts back: pods that have left since, and what budgets allowed."""

from msgspec.structs import replace

from makeway.planner.observe import past as module
from makeway.planner.observe.past import ShortPast
from makeway.planner.snapshot.changes import Change, PutBudget, PutPod, RemoveBudget, RemovePod
from makeway.planner.snapshot.state import Snapshot
from unit.planner.building import LOW, XL, make_budget, make_pod, make_snapshot


class Kept:
    """A snapshot whose changes are noted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.past = ShortPast()

    def apply(self, *changes: Change) -> None:
        for change in changes:
            self.snapshot.apply(change)
            self.past.note(change, self.snapshot.revision)


A = make_pod("a", "n1", LOW, XL)
B = make_pod("b", "n2", LOW, XL)
KEY = ("default", "web")


def test_only_bound_pods_that_left_after_the_moment_are_put_back() -> None:
    kept = Kept(make_snapshot(["n1", "n2"], [A, B, make_pod("pending")]))
    kept.apply(RemovePod("a"))
    moment = kept.snapshot.revision
    kept.apply(RemovePod("b"), RemovePod("pending"))

    found = kept.past.before(kept.snapshot, moment)

    assert found.left == (B,)
    assert found.complete


def test_a_pod_that_is_put_back_is_no_longer_being_deleted() -> None:
    kept = Kept(make_snapshot(["n1"], [A]))
    moment = kept.snapshot.revision
    leaving = replace(A, terminating=True, signature=replace(A.signature, terminating=True))
    kept.apply(PutPod(leaving))
    assert kept.past.before(kept.snapshot, moment).left == (), "it still is there"
    kept.apply(RemovePod("a"))

    assert kept.past.before(kept.snapshot, moment).left == (A,)


def test_a_pod_of_a_group_is_put_back_by_itself_and_that_is_said() -> None:
    kept = Kept(make_snapshot(["n1"], [replace(A, group="gang")]))
    moment = kept.snapshot.revision
    kept.apply(RemovePod("a"))

    found = kept.past.before(kept.snapshot, moment)

    assert found.left == (A,)
    assert not found.complete


def test_budgets_allow_what_they_did_also_where_they_changed_twice_or_are_gone() -> None:
    kept = Kept(make_snapshot(["n1"], [A]))
    kept.apply(PutBudget(make_budget("web", {"app": "web"}, 3)))
    moment = kept.snapshot.revision
    kept.apply(
        PutBudget(make_budget("web", {"app": "web"}, 2)), PutBudget(make_budget("web", {"app": "web"}, 1))
    )
    assert kept.past.before(kept.snapshot, moment).allowed == {KEY: 3}
    kept.apply(RemoveBudget(KEY))

    assert kept.past.before(kept.snapshot, moment).allowed == {KEY: 3}
    assert kept.past.before(kept.snapshot, kept.snapshot.revision).allowed == {}


def test_changes_are_bounded_and_what_was_forgotten_is_said() -> None:
    kept = Kept(make_snapshot(["n1"], [A]))
    moment = kept.snapshot.revision
    for allowed in range(1, module.MOST_BUDGET_CHANGES + 3):
        kept.past.note(PutBudget(make_budget("web", {"app": "web"}, allowed)), moment + allowed)

    assert not kept.past.before(kept.snapshot, moment).complete
    assert kept.past.before(kept.snapshot, moment + 10).complete


def test_restoring_leaves_nothing_behind() -> None:
    snapshot = make_snapshot(["n1"], [A, B])
    snapshot.apply(PutBudget(make_budget("web", {"app": "web"}, 1)))
    snapshot.apply(RemovePod("b"))
    revision, signatures = snapshot.revision, len(snapshot.signatures)

    with snapshot.restoring([B]):
        assert snapshot.signature("b")

    assert (snapshot.revision, len(snapshot.signatures)) == (revision, signatures)
    assert "b" not in snapshot.pods
