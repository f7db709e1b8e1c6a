"""Which evicted pods belong to which plan for a pod group."""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from makeway.core.comparison import RemovedPod
from makeway.planner.observe.marks import ANYWHERE, Evicted, Expected, PlanMarks, WaitingPlan
from makeway.planner.observe.pairing import QUIET, ComparedPair, Pairing
from unit.planner.building import HIGH, LOW, MID, NOW, make_pod
from unit.planner.test_observing import pod_object

SCHEDULER = "default-scheduler"


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def plan(
    group: str, seconds: float = 0, *, takes: str = "", priority: int = HIGH, scheduler: str = SCHEDULER
) -> Expected:
    return Expected(
        decision_id=f"dec-{group}-{seconds}",
        key=group,
        priority=priority,
        scheduler=scheduler,
        at=after(seconds),
        victims={ANYWHERE: frozenset(takes)},
    )


def mark(
    uid: str, node: str = "n1", seconds: float = 1, *, priority: int = LOW, scheduler: str = SCHEDULER
) -> Evicted:
    return Evicted(make_pod(uid, node, priority), RemovedPod(uid, priority, 0), scheduler, after(seconds))


def nominate(pairing: Pairing, group: str, node: str, seconds: float = 1) -> None:
    pod = pod_object(f"{group}-{node}", status={"nominatedNodeName": node})
    pairing.put(group, pod, after(seconds))


def victims(pairs: list[ComparedPair]) -> Mapping[str, list[str]]:
    return {pair.expected.key: [one.gone.uid for one in pair.evicted] for pair in pairs}


def test_a_mark_that_no_plan_takes_belongs_to_the_last_with_a_member_there_else_to_the_last() -> None:
    pairing = Pairing(anywhere=True)
    for seconds, group in enumerate(("first", "second", "last")):
        pairing.expect(plan(group, seconds / 10))
    nominate(pairing, "first", "n1")
    nominate(pairing, "second", "n1")

    pairing.evicted(mark("a", "n1"))
    pairing.evicted(mark("b", "n2"))

    assert victims(pairing.due(after(1) + QUIET)) == {"first": [], "second": ["a"], "last": ["b"]}


def test_what_a_group_that_has_ended_did_not_take_is_left_to_the_others() -> None:
    pairing = Pairing(anywhere=True)
    pairing.expect(plan("last", 0.2))
    pairing.expect(plan("first", 0.1))
    pairing.evicted(mark("a", seconds=3))
    nominate(pairing, "first", "n9", 0.3)

    assert victims(pairing.due(after(0.3) + QUIET)) == {"first": []}
    (pair,) = pairing.due(after(3) + QUIET)
    assert (victims([pair]), pair.shared) == ({"last": ["a"]}, False)


def test_looks_compare_no_mark_with_a_plan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = Pairing(anywhere=True)
    for number in range(4):
        pairing.expect(plan(f"g{number}", number / 10))
    for number in range(100):
        pairing.evicted(mark(f"v{number}"))
    monkeypatch.setattr(WaitingPlan, "may_be_behind", None)

    assert pairing.unasked(after(2), lambda _: (HIGH, 0)) == []
    assert pairing.due(after(2)) == []
    assert sum(len(found) for found in victims(pairing.due(after(1) + QUIET)).values()) == 100


@pytest.mark.parametrize("seed", range(30))
def test_what_is_kept_is_what_comparing_all_marks_with_all_plans_finds(seed: int) -> None:
    random_ = random.Random(seed)
    marks, kept = dict[str, Evicted](), PlanMarks(ANYWHERE)
    plans = dict[str, Expected]()
    for number in range(200):
        seconds = number / 10
        group = f"g{random_.randrange(6)}"
        match random_.randrange(4):
            case 0 if group not in plans:
                takes = "".join(random_.sample("abcdefgh", 3))
                at = seconds - random_.choice([0, 0, 2])
                of = random_.choice([SCHEDULER, "another"])
                plans[group] = plan(
                    group, at, takes=takes, priority=random_.choice([MID, HIGH]), scheduler=of
                )
                kept.expect(WaitingPlan(plans[group]))
            case 1 if plans:
                ended = random_.sample(sorted(plans), random_.randint(1, len(plans)))
                kept.end(ended)
                plans = {group: one for group, one in plans.items() if group not in ended}
            case 2:
                uid = random_.choice("abcdefghijkl")
                one = mark(uid, f"n{random_.randrange(3)}", seconds, priority=random_.choice([LOW, MID]))
                marks.setdefault(uid, one)
                kept.add(one)
            case 3 if marks:
                uid = random_.choice(sorted(marks))
                del marks[uid]
                kept.drop([uid])

        nodes = {f"n{place}": set(random_.sample(sorted(plans), len(plans) // 2)) for place in range(2)}
        found = {
            one.mark.gone.uid: (group, one.shared)
            for group, owned in kept.owned(nodes).items()
            for one in owned
        }
        assert found == {uid: owner for uid, one in marks.items() if (owner := owner_of(one, plans, nodes))}
        assert {one.gone.uid for one in kept.unclaimed()} == {
            uid for uid, one in marks.items() if not any(_takes(plan, one) for plan in plans.values())
        }


def _takes(plan: Expected, mark: Evicted) -> bool:
    return _is_able(plan, mark) and mark.gone.uid in plan.victims[ANYWHERE]


def _is_able(one: Expected, mark: Evicted) -> bool:
    return one.at <= mark.at and one.priority > mark.gone.priority and one.scheduler == mark.scheduler


def owner_of(
    mark: Evicted, plans: Mapping[str, Expected], nodes: Mapping[str, set[str]]
) -> tuple[str, bool] | None:
    """Return whose a mark is, and whether it may be another's, by the rule; None where it is no group's."""

    def rank(one: Expected) -> tuple[bool, bool, float, str]:
        taken, since = mark.gone.uid in one.victims[ANYWHERE], one.at.timestamp()
        elsewhere = one.key not in nodes.get(mark.pod.node, set())
        return not taken, elsewhere, since if taken else -since, one.decision_id

    able = [one for one in plans.values() if _is_able(one, mark)]
    return (min(able, key=rank).key, len(able) > 1) if able else None
