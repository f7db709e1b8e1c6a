"""A planner's quota loop and a whole evictor, with its caps, on one clock that is told the time."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from prometheus_client import CollectorRegistry

from makeway.bus.control import ControlState
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Fence, OrderKind, Outcome
from makeway.bus.queue_report import QuotaEnd
from makeway.bus.records import Last
from makeway.core.k8s.event import EventType
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import Policy
from makeway.core.policy.facts import PodFacts
from makeway.core.policy.mode import Mode
from makeway.core.queues.parsing import parse_queues
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.plan.decision import QuotaInputs
from makeway.planner.quota.loop import QuotaLoop
from makeway.planner.quota.processes import QuotaProcesses
from makeway.planner.recording.decisions import Decisions
from makeway.planner.snapshot.changes import Adopt, PutPod, RemovePod
from makeway.planner.snapshot.records import PodRecord
from makeway.planner.snapshot.state import Snapshot
from makeway.runtime.config import ConfigContent
from narrowing import there
from unit.evictor.building import CLUSTER, EPOCH, a_pod
from unit.evictor.test_service import World
from unit.planner.building import make_pod, make_snapshot

PATH = "root.a"
FENCE = Fence(kind="lease", namespace="makeway-system", name="makeway-planner", epoch=EPOCH)
DELAY = timedelta(seconds=60)
GATES = frozenset({"default-scheduler"})


def queues_yaml(most: int, *, enabled: bool = True, miss: int = 100, also: str = "") -> str:
    """Queue root.a of at most so many pods; `also`: of other resources, such as `, memory: 1Gi`."""
    return f"""
partitions:
  - preemption: {{quotapreemptionenabled: {str(enabled).lower()}}}
    queues:
      - name: a
        resources: {{max: {{pods: {most}{also}}}, quota.preemption.delay: 60, quota.preemption.miss: {miss}}}
"""


def pod_in_a(name: str, **more: Any) -> PodRecord:
    """A bound pod of root.a; a mirror pod, which stays, where `kept` says so."""
    facts = PodFacts(queue=PATH, mirror=more.pop("kept", False), created_micros=more.pop("created", 0))
    return make_pod(f"{name}-uid", "node-a", name=name, labels={"queue": PATH}, facts=facts, **more)


class Enforcing:
    """One lowered quota, from the timer on. `orders`: all that were written; `told`: the Events' reasons."""

    def __init__(
        self,
        pods: list[PodRecord],
        most: int,
        *,
        others: int = 0,
        policy: Policy | None = None,
        miss: int = 100,
        also: str = "",
    ) -> None:
        self.policy = policy or Policy()
        self.snapshot: Snapshot = make_snapshot(
            ["node-a"], [*pods, *(make_pod(f"o{n}", "node-a") for n in range(others))], policy=self.policy
        )
        self.evictor = World(*(a_pod(pod.name).in_queue(PATH).build() for pod in pods))
        self.evictor.policy = self.policy
        self.evictor.mode_guard.put_control(
            ControlState(revision=1, mode="enforce", cluster_uid=CLUSTER, pods=len(pods) + others)
        )
        self.clock = self.evictor.clock
        self.mode: Mode = "enforce"
        self.gates = GATES
        self.braked = ""
        self.orders: list[EvictionOrder] = []
        self.decisions: list[DecisionRecord] = []
        self.told: list[tuple[str, str]] = []
        self.answers = True
        self.stored: ControlState | None = None
        self.registry = CollectorRegistry()
        self._revisions = count(1)
        self.save(most, miss=miss, also=also)
        self.restart()

    def restart(self) -> None:
        """Another planner leads, with what the one before remembered."""
        metrics = PlannerMetrics(self.registry if not self.orders else CollectorRegistry())
        self.ledger = Ledger()
        for order in self.orders:
            self.ledger.ordered(order)
        for outcome in self.evictor.records.outcomes.values():
            self.ledger.ended(outcome)

        async def gates(now: datetime) -> frozenset[str]:
            return self.gates

        self.loop = QuotaLoop(
            cluster_uid=CLUSTER,
            identity="planner",
            mode=lambda: self.mode,
            ready=lambda: True,
            gates=gates,
            brake=lambda: Brake(namespaces=frozenset({self.braked} - {""})),
            now=self.clock.now,
            snapshot=self.snapshot,
            ledger=self.ledger,
            orders=Bus(self),
            writer=Bus(self),
            decisions=Noted(self, metrics),
            metrics=metrics,
            tell=self._tell,
        )

    def save(self, most: int, *, enabled: bool = True, miss: int = 100, also: str = "") -> None:
        """Put a file in force, for planner and evictor."""
        text = queues_yaml(most, enabled=enabled, miss=miss, also=also)
        self.evictor.queues.offer(ConfigContent("queues.yaml", text))
        self.snapshot.apply(Adopt(parse_queues(text, "queues.yaml").tree, f"r{next(self._revisions)}"))

    @property
    def control(self) -> QuotaProcesses:
        return there(self.loop.control)

    @property
    def ended(self) -> QuotaEnd | None:
        return self.loop.control.ended.get(PATH) if self.loop.control is not None else None

    def staying(self) -> int:
        """How many pods the queue has."""
        return sum(1 for _ in self.snapshot.queues.staying_in(there(self.snapshot.queues.tree).at(PATH)))

    async def run(self, duration: timedelta, until: Callable[[], object] | None = None) -> None:
        """Let time pass, a round at each moment at which something is due; stop where `until` is true."""
        end = self.clock.now() + duration
        while not (until is not None and until()):
            await self.loop.one_round(fence)
            due = [one.plan_at for one in self.control.processes.values() if one.plan_at is not None]
            now = self.clock.now()
            if now >= end:
                return
            later = [at for at in due if at > now] or [now + timedelta(seconds=1)]
            if not any(at <= now for at in due):
                self.clock.time = min(end, *later)

    async def until_ended(self, duration: timedelta = timedelta(hours=3)) -> QuotaEnd:
        """Let time pass until the process has ended."""
        await self.run(duration, lambda: self.ended is not None)
        assert self.ended is not None, self.control.waits()
        return self.ended

    def make(self, *pods: PodRecord) -> None:
        """Have pods made and bound."""
        for pod in pods:
            self.snapshot.apply(PutPod(pod))

    def _tell(self, event_type: EventType, reason: str, note: str) -> None:
        self.told.append((reason, note))


class Bus:
    """The streams; an order that is published is carried out at once, where the evictor answers."""

    def __init__(self, world: Enforcing) -> None:
        self._world = world

    async def control(self) -> tuple[ControlState | None, int]:
        return self._world.stored, 1

    async def last_order(self, about: str, kind: OrderKind) -> Last[EvictionOrder] | None:
        orders = self._world.orders
        return Last(orders[-1], len(orders), orders[-1].created_at) if orders else None

    async def outcome(self, order_id: str) -> Last[Outcome] | None:
        found = self._world.evictor.records.outcomes.get(order_id)
        return None if found is None else Last(found, 1, found.finished_at)

    async def store(self, order: EvictionOrder, after: int) -> EvictionOrder:
        world = self._world
        world.orders.append(order)
        if world.answers:
            outcome = await world.evictor.carry_out(order)
            for victim in outcome.victims:
                if victim.result == "deleted":
                    world.snapshot.apply(RemovePod(victim.uid))
        return order

    async def publish_decision(self, record: DecisionRecord) -> None:
        pass


class Noted(Decisions):
    """Keeps the decision records."""

    def __init__(self, world: Enforcing, metrics: PlannerMetrics) -> None:
        super().__init__(Bus(world), metrics)
        self._world = world

    def put(self, decision: Any) -> None:
        self._world.decisions.append(decision)

    def put_quota(self, record: DecisionRecord, inputs: QuotaInputs) -> None:
        self._world.decisions.append(record)


async def fence() -> Fence:
    return FENCE
