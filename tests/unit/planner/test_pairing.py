"""Which evicted pods belong to which plan of mode observe."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from makeway.core.comparison import RemovedPod
from makeway.planner.observe.marks import Evicted, Expected
from makeway.planner.observe.pairing import MOST_WAITING, QUIET, ComparedPair, Pairing
from unit.planner.building import HIGH, LOW, MID, NOW, make_pod
from unit.planner.test_observing import pod_object

SCHEDULER = "default-scheduler"


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def plan(uid: str, seconds: float = 0, *, node: str = "", takes: tuple[str, ...] = ()) -> Expected:
    return Expected(
        decision_id=f"dec-{uid}-{seconds}",
        key=uid,
        priority=HIGH,
        scheduler=SCHEDULER,
        at=after(seconds),
        victims={node: frozenset(takes)} if node else {},
    )


def nominate(pairing: Pairing, uid: str, node: str, seconds: float) -> None:
    pairing.put(uid, pod_object(uid, status={"nominatedNodeName": node}), after(seconds))


def bind(pairing: Pairing, uid: str, node: str, seconds: float) -> None:
    pairing.put(uid, pod_object(uid, spec={"nodeName": node}), after(seconds))


def mark(uid: str, node: str, seconds: float, *, priority: int = LOW, scheduler: str = SCHEDULER) -> Evicted:
    return Evicted(make_pod(uid, node, priority), RemovedPod(uid, priority, 0), scheduler, after(seconds))


def victims(pair: ComparedPair) -> list[str]:
    return [one.gone.uid for one in pair.evicted]


def test_marks_on_the_node_that_the_pod_is_nominated_to_are_its_victims() -> None:
    pairing = Pairing()
    pairing.expect(plan("P"))

    pairing.evicted(mark("a", "n1", 0.1))
    nominate(pairing, "P", "n1", 0.2)
    pairing.evicted(mark("b", "n1", 0.3))
    pairing.evicted(mark("c", "n2", 0.3))

    assert pairing.due(after(0.3) + QUIET / 2) == []
    (pair,) = pairing.due(after(0.3) + QUIET)
    assert (pair.nodes, victims(pair), pair.nominated_at, pair.shared) == (
        ("n1",),
        ["a", "b"],
        after(0.2),
        False,
    )
    assert len(pairing) == 0


def test_a_pod_that_lives_on_unmarked_was_evicted_by_no_one() -> None:
    pairing = Pairing()
    nominate(pairing, "P", "n1", 0)
    nominate(pairing, "Q", "n2", 0)
    pairing.expect(plan("P"))
    pairing.expect(plan("Q"))
    pairing.evicted(mark("a", "n1", 0.1))
    pairing.evicted(mark("b", "n2", 0.1))

    pairing.withdrawn("a", "n1")
    pairing.withdrawn("a", "n2")

    first, second = pairing.due(after(60))
    assert (first.nodes, first.evicted) == ((), ())
    assert (second.nodes, victims(second)) == (("n2",), ["b"])


def test_marks_of_another_scheduler_of_higher_priority_or_of_before_the_plan_belong_to_no_plan() -> None:
    pairing = Pairing()
    pairing.expect(plan("P", 1))
    nominate(pairing, "P", "n1", 1.1)

    pairing.evicted(mark("a", "n1", 1.2, scheduler="another"))
    pairing.evicted(mark("b", "n1", 1.2, priority=HIGH))
    pairing.evicted(mark("c", "n1", 0.9))

    (pair,) = pairing.due(after(60))
    assert pair.evicted == ()


def test_of_two_on_one_node_each_gets_whom_its_own_plan_would_take_there_and_both_are_said_to_share() -> None:
    pairing = Pairing()
    pairing.expect(plan("P", 0, node="n1", takes=("a",)))
    pairing.expect(plan("Q", 0.01, node="n1", takes=("a", "b")))
    nominate(pairing, "P", "n1", 0.02)
    nominate(pairing, "Q", "n1", 0.03)

    for uid in ("b", "a", "c"):
        pairing.evicted(mark(uid, "n1", 0.1))

    pairs = {pair.expected.key: pair for pair in pairing.due(after(60))}
    assert victims(pairs["P"]) == ["a"]
    assert victims(pairs["Q"]) == ["b", "c"]
    assert pairs["P"].shared
    assert pairs["Q"].shared


def test_the_next_plan_for_the_pod_ends_the_last_one_and_its_old_nomination_is_no_sign() -> None:
    pairing = Pairing()
    pairing.expect(plan("P"))
    nominate(pairing, "P", "n1", 0.1)
    pairing.evicted(mark("a", "n1", 0.1))

    (first,) = pairing.expect(plan("P", 1))
    nominate(pairing, "P", "n1", 1.1)

    assert victims(first) == ["a"]
    (second,) = pairing.due(after(60))
    assert (second.nodes, second.evicted) == ((), ())


def test_a_pod_whose_nomination_first_shows_in_its_next_request_was_nominated_by_the_last_cycle() -> None:
    pairing = Pairing()
    pairing.expect(plan("P"))
    pairing.evicted(mark("a", "n1", 0.1))

    nominate(pairing, "P", "n1", 1)
    (first,) = pairing.expect(plan("P", 1))

    assert (first.nodes, victims(first)) == (("n1",), ["a"])


def test_a_pod_that_is_bound_is_done_with_at_once_also_where_its_nomination_was_not_seen() -> None:
    pairing = Pairing()
    pairing.expect(plan("P"))
    pairing.evicted(mark("a", "n1", 0.1))

    bind(pairing, "P", "n1", 0.2)

    assert len(pairing) == 0
    (pair,) = pairing.due(after(0.2))
    assert (pair.nodes, victims(pair), pair.bound) == (("n1",), ["a"], True)
    bind(pairing, "P", "n1", 0.3)
    assert pairing.due(after(60)) == []


def test_a_mark_that_was_made_while_the_pod_waited_is_its_victims_however_late_it_is_known() -> None:
    pairing = Pairing()
    pairing.expect(plan("P"))
    nominate(pairing, "P", "n1", 0.1)
    bind(pairing, "P", "n1", 0.2)

    pairing.evicted(mark("held", "n1", 0.15))
    pairing.evicted(mark("later", "n1", 0.25))

    (pair,) = pairing.due(after(0.5))
    assert victims(pair) == ["held"]


def test_a_mark_before_a_plan_is_its_preemptors_only_where_no_other_plan_may_be_behind_it() -> None:
    def nominated(uid: str, seconds: float) -> None:
        spec = {"priority": HIGH, "schedulerName": SCHEDULER}
        pod = pod_object(uid, spec=spec, status={"nominatedNodeName": "n1"})
        pairing.put(uid, pod, after(seconds))

    for others in (True, False):
        pairing = Pairing()
        if others:
            pairing.expect(plan("P", node="n2", takes=("b",)))
            nominated("P", 0.1)
        pairing.evicted(mark("a", "n1", 0.2))
        pairing.expect(plan("Q", 0.3))
        nominated("Q", 0.4)

        assert [one.key for one in pairing.unasked(after(0.5))] == ([] if others else ["Q"])
        if others:
            assert next(victims(pair) for pair in pairing.due(after(0.4) + QUIET)) == ["a"]


def test_beyond_its_bound_the_eldest_plan_is_given_up_without_a_pair() -> None:
    pairing = Pairing()
    for number in range(MOST_WAITING):
        pairing.expect(plan(f"P{number}"))

    assert pairing.expect(plan("one more")) == []

    assert len(pairing) == MOST_WAITING
    assert pairing.waiting("P0", after(0)) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plan", "nominate", "mark", "end", "due"]),
        st.sampled_from(["P", "Q", "R"]),
        st.sampled_from(["n1", "n2"]),
        st.floats(0, 8),
    ),
    max_size=40,
)


@given(STEPS)
def test_every_mark_stands_in_at_most_one_pair_and_only_with_a_pod_of_higher_priority_on_its_node(
    steps: list[tuple[str, str, str, float]],
) -> None:
    pairing, now, pairs = Pairing(), 0.0, []
    for number, (what, uid, node, pause) in enumerate(steps):
        now += pause
        match what:
            case "plan":
                pairs += pairing.expect(plan(uid, now, node=node, takes=(f"v{number + 1}",)))
            case "nominate":
                nominate(pairing, uid, node, now)
            case "mark":
                pairing.evicted(mark(f"v{number}", node, now, priority=LOW if pause < 4 else MID))
            case "end":
                bind(pairing, uid, node, now)
            case _:
                pairs += pairing.due(after(now))
    pairs += pairing.due(after(now + 60))

    taken = [one.gone.uid for pair in pairs for one in pair.evicted]
    assert len(taken) == len(set(taken))
    for pair in pairs:
        assert all((one.pod.node,) == pair.nodes and one.at >= pair.expected.at for one in pair.evicted)
    assert len(pairing) == 0
    assert len(pairs) == sum(what == "plan" for what, *_ in steps)
