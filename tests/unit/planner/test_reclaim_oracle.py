"""Reclaim in drawn trees of queues, against docs/policies/reclaim.md written down once more, by brute force.

`make reclaim N=5000 FIRST=0` draws more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import Any

import pytest

from makeway.bus.plan import NodeSelection
from makeway.core.policy.facts import PodFacts
from makeway.core.queues.reclaim import Reclaim, reclaims
from makeway.core.queues.tree import PreemptionPolicy, QueueSpec, QueueTree
from makeway.planner.commit.removable import removable_pods
from makeway.planner.plan.constraints.queues import QueueConstraints
from makeway.planner.plan.request import Question
from makeway.planner.plan.result import Plan, PlanRefusal
from makeway.planner.plan.who_preempts import WhoPreempts
from makeway.planner.snapshot.changes import Adopt, PutPod, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue
from unit.planner.building import LOW, MID, NOW, ask, make_node, make_pod, make_snapshot
from unit.planner.caching import plan

CASES = int(os.environ.get("MAKEWAY_CASES", "200"))
FIRST = int(os.environ.get("MAKEWAY_FIRST", "0"))
PARTS = 4
RESOURCES = ("cpu", "memory")


@dataclass(frozen=True)
class Drawn:
    """A queue as it is drawn. `guaranteed`: by resource."""

    path: str
    guaranteed: dict[str, int]
    policy: PreemptionPolicy | None
    children: tuple[Drawn, ...] = ()


@dataclass(frozen=True)
class Case:
    """Some nodes full of pods, and a pod that needs room."""

    seed: int
    top: Drawn
    nodes: tuple[int, ...]
    pods: tuple[PodRecord, ...]
    preemptor: PodRecord
    on_their_way: tuple[PodRecord, ...] = ()
    queues: dict[str, Drawn] = field(default_factory=dict)


# ------------------------------------------------------------------------------------------ drawing


def draw(seed: int) -> Case:
    pick = random.Random(seed)
    top = _queue(pick, "root", pick.choice([2, 2, 3]))
    queues = {one.path: one for one in _all(top)}
    leaves = sorted(one.path for one in queues.values() if not one.children)
    sure = [path for path in leaves if queues[path].guaranteed or pick.random() < 0.3]
    own = pick.choice(sure or leaves)
    others = [own, *(path for path in leaves if path != own for _ in range(3))]
    nodes = tuple(pick.choice([4, 6]) for _ in range(pick.choice([1, 2, 2, 3])))
    pods: list[PodRecord] = []
    for node, size in enumerate(nodes):
        left = size - pick.choice([0, 0, 1])
        while left > 0:
            cpu, memory = (min(left, pick.choice([0, 1, 1, 2])) for _ in RESOURCES)
            left -= max(cpu, memory, 1)
            amounts = _amounts(cpu, memory)
            pods.append(_pod(pick, f"p{len(pods)}", f"n{node}", amounts, pick.choice(others)))
    coming = [_pod(pick, "coming", "", _amounts(1, 1), pick.choice(leaves))] if pick.random() < 0.3 else []
    asked = _amounts(pick.choice([1, 2, 2, 3]), pick.choice([0, 1, 2]))
    preemptor = make_pod("urgent", "", MID, requests=asked, **_in(own))
    return Case(seed, top, nodes, tuple(pods), preemptor, tuple(coming), queues)


def _queue(pick: random.Random, path: str, depth: int) -> Drawn:
    """Draw a queue; what is guaranteed to it is at least what those below it are, as in every file."""
    names = "abc"[: pick.choice([1, 2, 2, 3])] if depth else ""
    children = tuple(_queue(pick, f"{path}.{name}", pick.choice([0, 0, depth - 1])) for name in names)
    guaranteed = {}
    for name in RESOURCES:
        below = sum(one.guaranteed.get(name, 0) for one in children)
        own = below + pick.choice([0, 1, 2, 3, 4]) if path != "root" and pick.random() < 0.5 else 0
        if own:
            guaranteed[name] = own
    odd: list[PreemptionPolicy] = ["fence", "disabled", "default"]
    policies: list[PreemptionPolicy | None] = [*[None] * 20, *odd]
    return Drawn(path, guaranteed, pick.choice(policies), children)


def _pod(pick: random.Random, uid: str, node: str, amounts: dict[str, int], path: str) -> PodRecord:
    priority = pick.choice([LOW, MID, MID, MID, MID, MID + 1])
    return make_pod(uid, node, priority, requests=amounts, start=pick.randrange(9), **_in(path))


def _amounts(cpu: int, memory: int) -> dict[str, int]:
    return {"cpu": cpu, "memory": memory}


def _in(path: str) -> dict[str, Any]:
    return {"labels": {"queue": path}, "facts": PodFacts(queue=path)}


def _all(top: Drawn) -> Iterator[Drawn]:
    yield top
    for child in top.children:
        yield from _all(child)


def tree_of(case: Case) -> QueueTree:
    def spec(one: Drawn) -> QueueSpec:
        name = one.path.rpartition(".")[2]
        return queue(name, *map(spec, one.children), guaranteed=one.guaranteed, policy=one.policy)

    return QueueTree.of(spec(case.top), reclaim=True)


def snapshot_of(case: Case) -> Snapshot:
    nodes = [make_node(f"n{number}", size) for number, size in enumerate(case.nodes)]
    snapshot = make_snapshot(nodes, (*case.pods, *case.on_their_way))
    snapshot.apply(Adopt(tree_of(case), "queues-1"))
    return snapshot


# ------------------------------------------------------------------------------- the documents again


def line(case: Case, path: str) -> list[Drawn]:
    """A queue and those above it, the queue first."""
    found = []
    while path:
        found.append(case.queues[path])
        path = path.rpartition(".")[0]
    return found


def is_in(path: str, name: str) -> bool:
    return f"{path}.".startswith(f"{name}.")


def used(pods: Sequence[PodRecord], name: str, resource: str) -> int:
    return sum(pod.requests.get(resource, 0) for pod in pods if is_in(pod.facts.queue, name))


def taking(case: Case) -> Drawn | None:
    """The deepest queue that stays within its guarantee with the pod, in all that both name."""
    for one in line(case, case.preemptor.facts.queue):
        both = [name for name in one.guaranteed if case.preemptor.requests.get(name, 0)]
        after = {
            name: used([*case.pods, *case.on_their_way, case.preemptor], one.path, name) for name in both
        }
        if both and all(after[name] <= one.guaranteed[name] for name in both):
            return one
    return None


def may_go(case: Case, pod: PodRecord) -> bool:
    """Whether a pod may be evicted, looked at by itself."""
    if pod.priority != case.preemptor.priority:
        return pod.priority < case.preemptor.priority
    queue_taking = taking(case)
    if queue_taking is None or is_in(pod.facts.queue, queue_taking.path):
        return False
    holds = any(
        pod.requests.get(name, 0) and case.preemptor.requests.get(name, 0) for name in queue_taking.guaranteed
    )
    fences = [one.path for one in line(case, case.preemptor.facts.queue) if one.policy == "fence"]
    said = [one.policy for one in line(case, pod.facts.queue) if one.policy is not None]
    lends = not said or said[0] != "disabled"
    return holds and lends and all(is_in(pod.facts.queue, fence) for fence in fences)


def keeps(case: Case, victims: Sequence[PodRecord], queue: Drawn, resource: str) -> bool:
    """Whether a queue of others stays at or above what it is guaranteed of a resource."""
    freed = used(victims, queue.path, resource)
    shared = is_in(case.preemptor.facts.queue, queue.path)
    return not freed or shared or used(case.pods, queue.path, resource) - freed >= queue.guaranteed[resource]


def legal(case: Case, victims: Sequence[PodRecord]) -> bool:
    """Whether pods may be evicted together."""
    guaranteed = [(one, name) for one in case.queues.values() for name in one.guaranteed]
    return all(may_go(case, pod) for pod in victims) and all(keeps(case, victims, *one) for one in guaranteed)


def makes_room(case: Case, node: int, victims: Sequence[PodRecord]) -> bool:
    there = [pod for pod in case.pods if pod.node == f"n{node}" and pod not in victims]
    return all(
        case.nodes[node] - sum(pod.requests.get(name, 0) for pod in there)
        >= case.preemptor.requests.get(name, 0)
        for name in RESOURCES
    )


def is_promised(case: Case, node: int) -> bool:
    """Whether there is room whichever pods each guarantee keeps, where it keeps some of several.

    Guarantees are looked at one by one, so that one may keep a pod beside another that a second keeps.
    """
    there = [pod for pod in case.pods if pod.node == f"n{node}" and may_go(case, pod)]
    sets = [*chain.from_iterable(combinations(there, number) for number in range(len(there) + 1))]
    choices = []
    for one in case.queues.values():
        for name in one.guaranteed:
            sound = [frozenset(pod.uid for pod in some) for some in sets if keeps(case, some, one, name)]
            choices.append({one for one in sound if not any(one < other for other in sound)})
    left = {frozenset(pod.uid for pod in there)}
    for largest in choices:
        left = {one & other for one in left for other in largest}
    return all(makes_room(case, node, [pod for pod in there if pod.uid in one]) for one in left)


# ---------------------------------------------------------------------------------------- comparing


def question(case: Case) -> Question:
    """Ask for the pod; those on their way take no room on these nodes."""
    return ask(case.preemptor, nominations=[(pod.uid, "elsewhere") for pod in case.on_their_way])


def disagreements(case: Case) -> list[str]:
    snapshot = snapshot_of(case)
    nodes = [node for node in range(len(case.nodes)) if not makes_room(case, node, ())]
    asked = replace(question(case), nodes=NodeSelection(names=tuple(f"n{node}" for node in nodes)))
    found = plan(snapshot, asked, NOW)
    wrong = [
        f"refused ({found.message}), n{node} is promised"
        for node in nodes
        if isinstance(found, PlanRefusal) and is_promised(case, node)
    ]
    for candidate in found.candidates if isinstance(found, Plan) else ():
        node, victims = int(candidate.node[1:]), [one.pod for one in candidate.victims]
        uids = [pod.uid for pod in victims]
        if not legal(case, victims):
            wrong.append(f"{candidate.node}: {uids} may not go")
        if not makes_room(case, node, victims):
            wrong.append(f"{candidate.node}: {uids} make no room")
        wrong += [
            f"{candidate.node}: {pod.uid} of {uids} need not go"
            for pod in victims
            if makes_room(case, node, [one for one in victims if one is not pod])
        ]
        if removable_pods(snapshot, asked, victims, NOW).keys() != set(uids):
            wrong.append(f"{candidate.node}: the commit of {uids} is refused")
        wrong += [f"the evictor spares {pod.uid}" for pod in victims if not evictor_lets_go(case, pod)]
    wrong += _judged(case, snapshot)
    return wrong


def _judged(case: Case, snapshot: Snapshot) -> Iterator[str]:
    """Let a commit name any pods of a node."""
    pick = random.Random(case.seed)
    asked = question(case)
    for node in range(len(case.nodes)):
        there = [pod for pod in case.pods if pod.node == f"n{node}"]
        named = pick.sample(there, pick.randrange(len(there) + 1))
        accepted = removable_pods(snapshot, asked, named, NOW).keys() == {pod.uid for pod in named}
        if accepted != legal(case, named):
            yield f"a commit of {[pod.uid for pod in named]}: {accepted}"


def evictor_lets_go(case: Case, pod: PodRecord) -> bool:
    """Ask as the evictor does, which knows no usage."""
    built, mine = tree_of(case), case.preemptor
    leaf = built.at(mine.facts.queue).number
    found = reclaims(built, leaf, mine.requests, mine.priority, lambda _: {})
    path = pod.facts.queue
    return pod.priority < mine.priority or any(
        one.with_pod(path, pod.priority, pod.requests) for one in found
    )


@pytest.mark.parametrize("part", range(PARTS))
def test_plans_commits_and_evictors_keep_to_the_documents_in_drawn_trees(part: int) -> None:
    seeds = range(FIRST + part * CASES // PARTS, FIRST + (part + 1) * CASES // PARTS)
    wrong = {seed: found for seed in seeds if (found := disagreements(draw(seed)))}

    assert wrong == {}


def test_cases_take_back_are_refused_and_meet_guarantees() -> None:
    cases = [draw(seed) for seed in range(200)]
    taken = [case for case in cases for pod in case.pods if pod.priority == MID and may_go(case, pod)]

    assert len({case.seed for case in taken}) > 40
    assert sum(taking(case) is None for case in cases) > 20


DEFECTS: dict[str, tuple[object, str, object]] = {
    "no guarantee is kept": (QueueConstraints, "kept", lambda self, batch, removable: removable & False),
    "nothing is reclaimed": (WhoPreempts, "reclaimable", lambda *asked: None),
    "every queue lends": (
        Reclaim,
        "with_pod",
        lambda self, path, priority, requests: "x" if priority == self.priority else "",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead = DEFECTS[defect]
    monkeypatch.setattr(where, name, instead)

    assert any(disagreements(draw(seed)) for seed in range(200))


@pytest.mark.parametrize("part", range(PARTS))
def test_pods_that_come_back_take_back_nothing_without_end(part: int) -> None:
    for seed in range(FIRST + part * CASES // PARTS, FIRST + (part + 1) * CASES // PARTS):
        case = draw(seed)
        assert _rounds(case) <= 3 * len(case.pods) + 3, f"seed {seed} evicts without end"


def _rounds(case: Case) -> int:
    """Place the preemptor, make each victim anew, and go on as long as any of them is helped; count plans."""
    snapshot, waiting, plans = snapshot_of(case), [case.preemptor], 0
    idle = 0
    while waiting and idle < len(waiting):
        pod = waiting.pop(0)
        found = plan(snapshot, ask(pod), NOW)
        if not isinstance(found, Plan) or not (found.candidates or found.unmodelled):
            waiting.append(pod)
            idle += 1
            continue
        best = (*found.candidates, *found.unmodelled)[0]
        victims = [one.pod for one in best.removable if one.victim]
        for victim in victims:
            snapshot.apply(RemovePod(victim.uid))
            again = make_pod(
                f"{victim.uid}'",
                priority=victim.priority,
                requests={name: victim.requests.get(name, 0) for name in RESOURCES},
                **_in(victim.facts.queue),
            )
            waiting.append(again)
        amounts = {name: pod.requests.get(name, 0) for name in RESOURCES}
        placed = make_pod(pod.uid, best.node, pod.priority, requests=amounts, **_in(pod.facts.queue))
        snapshot.apply(PutPod(placed))
        plans, idle = plans + bool(victims), 0
        if plans > 100:
            break
    return plans
