"""What the loop does from timer to result, and where a message about one queue cannot be read."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from msgspec.structs import replace as replace_struct
from prometheus_client import CollectorRegistry

from background import background
from builders_bus import make_outcome, make_victim
from makeway.bus.control import ControlState, SettledQuota
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import Malformed
from makeway.bus.messages import EvictionOrder, Fence, OrderKind, Outcome, Victim, VictimOutcome
from makeway.bus.queue_report import QuotaEnd
from makeway.bus.records import Last
from makeway.core.k8s.budget import Budget
from makeway.core.k8s.selector import Requirement, Selector
from makeway.core.policy.document import Policy
from makeway.core.policy.facts import PodFacts
from makeway.core.queues import victims as quota_victims
from makeway.core.queues.tree import QueueTree
from makeway.core.queues.victims import Steps
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.decision import Decision, QuotaInputs
from makeway.planner.quota.decide import QuotaAnswer, answering
from makeway.planner.quota.loop import QuotaLoop
from makeway.planner.quota.processes import QuotaMemory, QuotaProcesses
from makeway.planner.recording.decisions import Decisions
from makeway.planner.snapshot.changes import Adopt, Enforce, PutBudget, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from unit.core.queue_building import queue, tree
from unit.planner.building import NOW, make_order, make_pod, make_snapshot, settle

FENCE = Fence(kind="kv", name="makeway-planner", epoch=1)
AT_ONCE = timedelta(milliseconds=1)
SECONDS = 5
"""Long enough for many rounds."""


class FakeBus:
    """Keeps the orders; has a last order of one queue, or outcomes, that cannot be read."""

    def __init__(self, *, last: str = "", outcomes: bool = False) -> None:
        self.orders: list[EvictionOrder] = []
        self.stored: ControlState | None = None
        self.published = asyncio.Event()
        self._last = last
        self._outcomes = outcomes

    async def control(self) -> tuple[ControlState | None, int]:
        return self.stored, 1

    async def last_order(self, about: str, kind: OrderKind) -> Last[EvictionOrder] | None:
        if about == self._last:
            raise Malformed("not-json", "an order")
        return None

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        if self._outcomes:
            raise Malformed("not-json", "an outcome")
        return None

    async def store(self, order: EvictionOrder, after: int) -> EvictionOrder:
        self.orders.append(order)
        self.published.set()
        return order

    async def publish_decision(self, record: DecisionRecord) -> None:
        pass


def lowered() -> Snapshot:
    """Two queues that use more than their maximum, which fires at once."""
    queues = [replace(queue(name, maximum={"cpu": 50}), delay=AT_ONCE) for name in ("a", "b")]
    paths = ("root.a", "root.b")
    pods = [
        make_pod(path, "n1", labels={"queue": path}, facts=PodFacts(queue=path, scheduled_micros=0))
        for path in paths
    ]
    snapshot = make_snapshot(["n1"], pods)
    snapshot.apply(Adopt(tree(*queues), "queues-1"))
    return snapshot


class Evicting(FakeBus):
    """Carries each order out at once; the API server refuses the deletes of some pods."""

    def __init__(self, snapshot: Snapshot, undeletable: str = "") -> None:
        super().__init__()
        self._snapshot = snapshot
        self._undeletable = undeletable.split()
        self._ended: dict[str, Last[Outcome]] = {}

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        return self._ended.get(order_id)

    async def store(self, order: EvictionOrder, after: int) -> EvictionOrder:
        victims = tuple(map(self._evict, order.victims))
        failed = any(one.result == "failed" for one in victims)
        now = datetime.now(UTC)
        ended = {"result": "failed", "reason": "incomplete"} if failed else {}
        found = make_outcome(order, started_at=now, finished_at=now, victims=victims, **ended)
        self._ended[order.order_id] = Last(found, 1, now)
        return await super().store(order, after)

    def _evict(self, victim: Victim) -> VictimOutcome:
        named = VictimOutcome(namespace=victim.namespace, name=victim.name, uid=victim.uid, result="deleted")
        if victim.uid in self._undeletable:
            return replace_struct(named, result="failed", reason="Forbidden", message="403 no-delete denied")
        self._snapshot.apply(RemovePod(victim.uid))
        return named

    @property
    def taken(self) -> list[list[str]]:
        """UIDs of the victims, by order."""
        return [[victim.uid for victim in one.victims] for one in self.orders]


async def ended(snapshot: Snapshot, bus: FakeBus, *paths: str) -> dict[str, QuotaEnd]:
    """Lead until the processes of these queues have ended, and give how."""
    told = asyncio.Event()
    loop = loop_of(snapshot, bus, Ledger(), told=told)
    async with background(loop.lead(fence)), asyncio.timeout(3 * SECONDS):
        while loop.control is None or not loop.control.ended.keys() >= set(paths):
            await told.wait()
            told.clear()
        return loop.control.ended


async def fence() -> Fence:
    return FENCE


async def gates(now: datetime) -> frozenset[str]:
    return frozenset({"default-scheduler"})


def loop_of(
    snapshot: Snapshot,
    bus: FakeBus,
    ledger: Ledger,
    ready: Callable[[], bool] = lambda: True,
    *,
    told: asyncio.Event | None = None,
    decisions: Decisions | None = None,
) -> QuotaLoop:
    """A loop on a snapshot; `told` is set when it tells of a result."""
    told = told or asyncio.Event()
    metrics = PlannerMetrics(CollectorRegistry())
    return QuotaLoop(
        cluster_uid="cluster",
        identity="planner",
        mode=lambda: "enforce",
        ready=ready,
        gates=gates,
        snapshot=snapshot,
        ledger=ledger,
        orders=bus,
        writer=bus,
        decisions=decisions or Decisions(bus, metrics),
        metrics=metrics,
        tell=lambda event_type, reason, note: told.set(),
    )


async def led(bus: FakeBus, ledger: Ledger, path: str, *ready: bool) -> list[str]:
    """Lead until there is an order for a queue, and give the queues that there are orders for by then.

    `ready`: what is answered first to the questions whether there is something to plan on; then True.
    """
    answers = iter(ready)
    loop = loop_of(lowered(), bus, ledger, lambda: next(answers, True))
    with contextlib.suppress(TimeoutError):
        async with background(loop.lead(fence)), asyncio.timeout(SECONDS):
            while path not in {one.queue for one in bus.orders}:
                await bus.published.wait()
                bus.published.clear()
    return [one.queue for one in bus.orders]


def order(path: str, not_after: datetime) -> EvictionOrder:
    victim = make_victim(path, namespace="default", uid=path, node="n1", rule="quota")
    created = not_after - timedelta(seconds=120)
    return make_order("ord-1", created, kind="quota", not_after=not_after, queue=path, victims=(victim,))


async def test_a_last_order_that_cannot_be_read_makes_its_own_queue_wait_and_no_other() -> None:
    assert await led(FakeBus(last="root.a"), Ledger(), "root.b") == ["root.b"]


async def test_no_quota_is_planned_for_on_pods_that_are_just_being_counted_anew() -> None:
    # Asked before each of two rounds, of which the first starts the timers; then for each queue.
    assert await led(FakeBus(), Ledger(), "root.b", True, True, False) == ["root.b"]


async def test_an_outcome_that_cannot_be_read_is_none_and_other_queues_go_on() -> None:
    ledger = Ledger()
    ledger.ordered(order("root.a", datetime.now(UTC) + timedelta(seconds=30)))

    assert await led(FakeBus(outcomes=True), ledger, "root.b") == ["root.b"]


async def test_an_order_whose_outcome_cannot_be_read_is_over_after_its_deadline() -> None:
    ledger = Ledger()
    # Live in the first round, over in the second.
    ledger.ordered(order("root.a", datetime.now(UTC) - timedelta(seconds=1.9)))

    assert "root.a" in await led(FakeBus(outcomes=True), ledger, "root.a")


def pods_in(path: str, *names: str) -> list[PodRecord]:
    """Bound pods of one queue, the oldest first."""
    return [
        make_pod(
            name,
            "n1",
            size=5,
            labels={"queue": path},
            facts=PodFacts(queue=path, created_micros=number, scheduled_micros=0),
        )
        for number, name in enumerate(names)
    ]


def snapshot_of(built: QueueTree, *pods: PodRecord) -> Snapshot:
    snapshot = make_snapshot(["n1"], pods)
    snapshot.apply(Adopt(built, "queues-1"))
    return snapshot


async def test_where_one_pod_cannot_be_evicted_another_goes_and_the_cause_is_named() -> None:
    built = tree(replace(queue("a", maximum={"cpu": 10}), delay=AT_ONCE))
    snapshot = snapshot_of(built, *pods_in("root.a", "old", "middle", "young"))
    bus = Evicting(snapshot, undeletable="young")

    found = (await ended(snapshot, bus, "root.a"))["root.a"]

    assert bus.taken == [["young"], ["middle"]]
    assert (found.result, found.evicted) == ("success", 1)
    assert "1 pod could not be evicted: default/young: 403 no-delete denied" in found.message


async def test_where_no_pod_can_be_evicted_each_is_tried_once() -> None:
    built = tree(replace(queue("a", maximum={"cpu": 5}), delay=AT_ONCE))
    snapshot = snapshot_of(built, *pods_in("root.a", "p1", "p2"))
    bus = Evicting(snapshot, undeletable="p1 p2")

    found = (await ended(snapshot, bus, "root.a"))["root.a"]

    assert bus.taken == [["p2"], ["p1"]]
    assert (found.result, found.evicted) == ("unsuccessful", 0)
    assert [obstacle.reason for obstacle in found.blocked] == ["not-evicted"]
    assert "2 pods could not be evicted" in found.message


async def test_a_parent_and_a_queue_below_lowered_together_both_come_down() -> None:
    training = replace(queue("training", maximum={"cpu": 30}), delay=AT_ONCE)
    notebooks = queue("notebooks", guaranteed={"cpu": 15})
    research = replace(queue("research", training, notebooks, maximum={"cpu": 40}), delay=AT_ONCE)
    snapshot = snapshot_of(
        tree(research),
        *pods_in("root.research.training", *(f"t{number:02}" for number in range(16))),
        *pods_in("root.research.notebooks", "n0", "n1", "n2"),
    )
    bus = Evicting(snapshot)

    found = await ended(snapshot, bus, "root.research.training", "root.research")

    assert [len(taken) for taken in bus.taken] == [10, 1]
    assert found["root.research"].result == "success"


async def test_a_plan_leaves_other_queues_to_the_processes_that_run_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lowered = [replace(queue(name, maximum={"cpu": 5}), delay=AT_ONCE) for name in "ab"]
    snapshot = snapshot_of(tree(*lowered), *pods_in("root.a", "a1", "a2"), *pods_in("root.b", "b1", "b2"))
    running = dict[str, frozenset[str]]()

    def noted(snapshot: Snapshot, tree: QueueTree, inputs: QuotaInputs) -> Steps[QuotaAnswer]:
        running.setdefault(inputs.queue, inputs.running)
        return answering(snapshot, tree, inputs)

    monkeypatch.setattr("makeway.planner.quota.loop.answering", noted)
    await ended(snapshot, Evicting(snapshot), "root.a", "root.b")

    assert running == {"root.a": {"root.b"}, "root.b": {"root.a"}}


async def test_a_new_leader_leaves_alone_what_the_one_before_has_settled() -> None:
    """The process of root.a ended without evicting a pod; the timer of root.b ran."""
    built = tree(
        *(replace(queue(name, maximum={"cpu": 5}), delay=timedelta(seconds=1)) for name in ("a", "b"))
    )
    snapshot = snapshot_of(built, *pods_in("root.a", "a1", "a2"), *pods_in("root.b", "b1", "b2"))
    before = QuotaProcesses()
    before.saved(built, "enforce", NOW)
    assert before.due(built, NOW + timedelta(seconds=1)) == ["root.a", "root.b"]
    before.finish("root.a", "unsuccessful", "no pod could go", NOW)
    bus = Evicting(snapshot)
    bus.stored = ControlState(
        revision=1, mode="enforce", cluster_uid="cluster", settled=before.memory().settled
    )

    await ended(snapshot, bus, "root.b")

    assert bus.taken == [["b2"]]
    assert "a2" in snapshot.pods


async def test_what_has_settled_is_to_be_remembered() -> None:
    built = tree(replace(queue("a", maximum={"cpu": 5}), delay=AT_ONCE))
    snapshot = snapshot_of(built, *pods_in("root.a", "a1", "a2"))
    loop = loop_of(snapshot, Evicting(snapshot), Ledger())
    remembered = asyncio.Queue[QuotaMemory | None]()
    loop.remember = lambda: remembered.put_nowait(loop.memory())
    assert loop.memory() is None

    async with background(loop.lead(fence)), asyncio.timeout(3 * SECONDS):
        while not ((memory := await remembered.get()) and memory.settled):
            pass

    assert memory.enforcing == ()
    assert memory.settled == (
        SettledQuota(path="root.a", max={"cpu": 5}, delay_microseconds=1000, mode="enforce"),
    )


MANY = tuple(f"p{number:03}" for number in range(40))


async def rushed(
    snapshot: Snapshot,
    happens: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    decisions: Decisions | None = None,
    ledger: Ledger | None = None,
) -> tuple[QuotaEnd | None, Evicting]:
    """Plan in chunks of two pods, at each pause of which something happens; return how it ended, or None."""

    def interrupted(snapshot: Snapshot, tree: QueueTree, inputs: QuotaInputs) -> Steps[QuotaAnswer]:
        steps = answering(snapshot, tree, inputs)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                answer: QuotaAnswer = end.value
                return answer
            happens()
            yield

    monkeypatch.setattr(quota_victims, "CHUNK", 2)
    monkeypatch.setattr("makeway.planner.quota.loop.answering", interrupted)
    bus = Evicting(snapshot)
    loop = loop_of(snapshot, bus, Ledger() if ledger is None else ledger, decisions=decisions)
    async with background(loop.lead(fence)), asyncio.timeout(3 * SECONDS):
        while loop.control is None or not (loop.control.ended or loop.control.waits()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return loop.control.ended.get("root.a"), bus


def halved() -> Snapshot:
    """40 pods of a queue, of which 20 may stay."""
    return snapshot_of(
        tree(replace(queue("a", maximum={"cpu": 100}), delay=AT_ONCE)), *pods_in("root.a", *MANY)
    )


async def test_pods_that_leave_while_a_quota_is_planned_are_not_evicted_in_place_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = halved()
    leaving = iter(MANY[:15])

    def one_leaves() -> None:
        if (name := next(leaving, "")) != "":
            snapshot.apply(RemovePod(name))

    _, bus = await rushed(snapshot, one_leaves, monkeypatch)

    # 15 have left by themselves.
    gone = {uid for uids in bus.taken for uid in uids}
    assert len(gone) == 5
    assert not gone & set(MANY[:15])
    assert len(snapshot.pods) == 20


async def test_what_came_down_while_a_quota_is_planned_evicts_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = halved()
    leaving = iter(MANY[:25])

    def two_leave() -> None:
        for _ in range(2):
            if (name := next(leaving, "")) != "":
                snapshot.apply(RemovePod(name))

    _, bus = await rushed(snapshot, two_leave, monkeypatch)

    assert bus.taken == []
    assert len(snapshot.pods) == 15


async def test_pods_that_commits_take_while_a_quota_is_planned_are_not_ordered_beside_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, created = Ledger(), datetime.now(UTC)
    victims = tuple(make_victim(uid, namespace="default", uid=uid, node="n1") for uid in MANY[:15])
    commit = make_order("ord-2", created, not_after=created + timedelta(seconds=60), victims=victims)

    _, bus = await rushed(halved(), lambda: ledger.reserve(commit), monkeypatch, ledger=ledger)

    # 15 of the 20 that are too many go for a pod.
    gone = {uid for uids in bus.taken for uid in uids}
    assert len(gone) == 5
    assert not gone & set(MANY[:15])


class Slow(Evicting):
    """A stream that takes a while for an order."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        super().__init__(snapshot)
        self._ledger = ledger
        self.seen: set[str] = set()

    async def store(self, order: EvictionOrder, after: int) -> EvictionOrder:
        await asyncio.sleep(0)
        self.seen |= self._ledger.in_flight(order.created_at).keys()
        return await super().store(order, after)


async def test_victims_of_a_quota_count_as_in_flight_while_the_order_is_being_stored() -> None:
    snapshot, ledger = halved(), Ledger()
    bus = Slow(snapshot, ledger)
    loop = loop_of(snapshot, bus, ledger)

    async with background(loop.lead(fence)), asyncio.timeout(SECONDS):
        await bus.published.wait()

    assert bus.seen == set(bus.taken[0])


class Noting(Decisions):
    """Keeps which decisions were put with what they were made from, and which without."""

    def __init__(self) -> None:
        super().__init__(FakeBus(), PlannerMetrics(CollectorRegistry()))
        self.recorded: list[bool] = []

    def put(self, decision: Decision | DecisionRecord) -> None:
        self.recorded.append(False)

    def put_quota(self, record: DecisionRecord, inputs: QuotaInputs) -> None:
        self.recorded.append(True)


@pytest.mark.parametrize("changes", [False, True])
async def test_a_quota_is_recorded_only_where_the_snapshot_did_not_change_while_it_was_planned(
    changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, noted = halved(), Noting()
    leaving = iter(MANY[:1] if changes else ())

    def one_leaves() -> None:
        if (name := next(leaving, "")) != "":
            snapshot.apply(RemovePod(name))

    await rushed(snapshot, one_leaves, monkeypatch, noted)

    assert noted.recorded[0] is not changes


async def test_a_quota_planned_for_while_budgets_become_known_is_in_no_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = tree(replace(queue("a", maximum={"cpu": 100}), delay=AT_ONCE))
    snapshot, noted = make_snapshot(["n1"], pods_in("root.a", *MANY), chunk=1), Noting()
    snapshot.apply(Adopt(built, "queues-1"))
    settle(snapshot)
    snapshot.updates.serving = True
    snapshot.apply(PutBudget(everything(10)))
    assert snapshot.undecided

    def applied() -> None:
        settle(snapshot)

    await rushed(snapshot, applied, monkeypatch, noted)

    assert not snapshot.undecided
    assert noted.recorded[0] is False


def everything(allowed: int) -> Budget:
    """A budget over all pods of queues."""
    return Budget(
        "default", "all", allowed, Selector((Requirement("queue", "Exists", frozenset()),)), frozenset()
    )


async def test_a_plan_of_which_a_budget_let_only_a_part_be_ordered_waits_for_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot, pauses = halved(), count(1)
    snapshot.apply(Enforce(Policy(disruption_budgets="hard", hard_budget_namespaces=("*",)), "p"))
    snapshot.apply(PutBudget(everything(30)))

    def another_budget() -> None:
        if next(pauses) == 30:
            snapshot.apply(PutBudget(everything(5)))

    ended, _ = await rushed(snapshot, another_budget, monkeypatch)

    assert next(pauses) > 30, "the budget changed while the plan was made"
    assert len(snapshot.pods) > 20, "the queue still is over its maximum"
    assert ended is None


async def test_budgets_that_are_just_being_matched_with_pods_end_no_quota() -> None:
    built = tree(replace(queue("a", maximum={"cpu": 100}), delay=AT_ONCE))
    snapshot = make_snapshot(["n1"], pods_in("root.a", *MANY), chunk=1)
    for change in (
        Adopt(built, "queues-1"),
        Enforce(Policy(disruption_budgets="hard", hard_budget_namespaces=("*",)), "p"),
    ):
        snapshot.apply(change)
    settle(snapshot)
    snapshot.updates.serving = True
    snapshot.apply(PutBudget(everything(50)))
    assert snapshot.undecided
    bus = Evicting(snapshot)
    loop = loop_of(snapshot, bus, Ledger())

    async with asyncio.timeout(SECONDS):
        await loop.one_round(fence)
        assert loop.control is not None
        while "root.a" not in {*loop.control.processes, *loop.control.ended}:
            await asyncio.sleep(0.01)
            await loop.one_round(fence)

    assert loop.control.processes.keys() == {"root.a"}
    assert bus.orders == []
    settle(snapshot)
    assert (await ended(snapshot, bus, "root.a"))["root.a"].result == "success"
