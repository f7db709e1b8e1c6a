"""A page for tests: the real application over messages and a cluster that are made up, on its own port."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from builders_bus import make_decision, make_order, make_outcome, make_preemptor, make_victim
from makeway.bus.client import Bus
from makeway.bus.comparison import Choice, Comparison
from makeway.bus.component_status import ComponentStatus
from makeway.bus.decisions import DecisionRecord, NearNode, Spared
from makeway.bus.messages import EvictionOrder, Message, Outcome
from makeway.bus.plan import Refusal
from makeway.bus.queue_report import QueueReport, QueueState
from makeway.cli.history.story import Story
from makeway.cli.why.explanation import Explanation, NotKept
from makeway.dev.samples import MESSAGES
from makeway.planner.offline.dump import world_of
from makeway.planner.offline.world import World
from makeway.planner.orders.ledger import Ledger
from makeway.runtime.kube import Api
from makeway.runtime.settings import ConfigSettings
from makeway.ui.edge.app import Site, page_app
from makeway.ui.edge.cluster import ClusterReader
from makeway.ui.edge.gate import Gate, LocalGate
from makeway.ui.edge.guard import App
from makeway.ui.edge.reader import Reader
from makeway.ui.edge.server import listening, serve
from makeway.ui.edge.sources import Sources
from narrowing import as_a

TOKEN = "a-token-of-the-page"  # noqa: S105 - of a test
HOST = "127.0.0.1"

_REASONS = ("NoLowerPriorityPods", "NotEnoughRoom", "PodsSpared", "NoPotentialNodes")


def story_messages(count: int, now: datetime) -> list[Message]:
    """Make the messages of so many preemptions or refusals, the eldest first."""
    chance = random.Random(1)
    messages: list[Message] = []
    for number in range(count):
        at = now - timedelta(seconds=5 + (count - number) * 3300 / count)
        messages += _one(number, at, chance)
    return messages


def _one(number: int, at: datetime, chance: random.Random) -> list[Message]:
    space = chance.choice(("shop", "search", "ml", "media"))
    preemptor = make_preemptor(f"uid-{number}", namespace=space, name=f"urgent-{number}")
    node = f"node-{chance.randrange(60):04}"
    victims = tuple(
        make_victim(f"crunch-{number}-{place}", namespace="batch", node=node, priority=10 * place)
        for place in range(chance.choice((1, 1, 2, 3)))
    )
    decision_id, order_id = f"dec-{number:08}", f"ord-{number:08}"
    if chance.random() < 0.3:
        refusal = Refusal(
            reason=chance.choice(_REASONS),
            message=f"pod {space}/urgent-{number} asks for cpu 2: on 40 nodes no pod may be evicted",
            node_reasons={"Insufficient cpu": 40, "No pods of lower priority": 20},
        )
        return [
            make_decision(
                decision_id=decision_id,
                at=at,
                status="refused",
                diagnosis=refusal,
                preemptor=preemptor,
                victims=(),
                candidates=(),
                nominated_node="",
                nearest=(
                    NearNode(
                        node=node,
                        spared=(
                            Spared(
                                namespace="db",
                                name="main-0",
                                uid="uid-db",
                                priority=5,
                                rule="protected-namespace",
                                detail="namespace db is protected",
                            ),
                        ),
                    ),
                ),
            )
        ]
    order = make_order(
        preemptor.uid,
        order_id=order_id,
        decision_id=decision_id,
        created_at=at,
        not_after=at + timedelta(seconds=60),
        preemptor=preemptor,
        node=node,
        victims=victims,
    )
    decision = make_decision(
        decision_id=decision_id, at=at, preemptor=preemptor, nominated_node=node, victims=victims
    )
    messages: list[Message] = [decision, order]
    if number % 997 != 0:
        failed = chance.random() < 0.05
        outcome = make_outcome(
            order, started_at=at, finished_at=at + timedelta(milliseconds=chance.randrange(20, 400))
        )
        messages.append(replace(outcome, result="failed", reason="delete-refused") if failed else outcome)
    if number % 5 == 0:
        sample = as_a(Comparison, MESSAGES["comparison.full"])
        messages.append(
            replace(
                sample,
                decision_id=f"cmp-{number:08}",
                planned_at=at,
                preemptor=preemptor,
                result=chance.choice(("same", "equal", "better", "worse")),
                decided_by="fewest-victims",
                makeway=Choice(node=node, victims=victims[:1]),
                default_preemption=Choice(node=node, victims=victims),
            )
        )
    return messages


def cluster(nodes: int, pods_a_node: int = 4) -> World:
    """Make a cluster: full nodes in three zones, some cordoned or tainted, and a few pending pods."""
    items: list[dict[str, Any]] = [
        {
            "kind": "Node",
            "metadata": {
                "name": f"node-{number:04}",
                "uid": f"uid-node-{number}",
                "labels": {
                    "topology.kubernetes.io/zone": f"zone-{'abc'[number % 3]}",
                    "node.kubernetes.io/instance-type": ("m8.large", "c8.xlarge")[number % 2],
                },
            },
            "spec": {
                "unschedulable": number % 37 == 5,
                "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
                if number % 23 == 7
                else [],
            },
            "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
        }
        for number in range(nodes)
    ]
    items += [
        _pod("batch", f"crunch-{number}-{place}", f"node-{number:04}", "500m" if place else "1", place * 10)
        for number in range(nodes)
        for place in range(pods_a_node)
    ]
    items += [_pod("shop", f"waiting-{number}", "", "3500m", 5 * number) for number in range(3)]
    world, _ = world_of(msgspec.json.encode({"kind": "List", "items": items}), "made up")
    return world


def _pod(namespace: str, name: str, node: str, cpu: str, priority: int) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}"},
        "spec": {
            "priority": priority,
            "schedulerName": "default-scheduler",
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def queue_report(now: datetime) -> QueueReport:
    """Make a tree of queues with and without limits, one of them full."""
    gib = 2**30
    return QueueReport(
        api_version="makeway.dev/v1",
        planner="planner-0",
        at=now,
        revision="1",
        quota_preemption=True,
        queues=(
            QueueState(path="root", pods=42, usage={"cpu": 61000, "memory": 90 * gib}),
            QueueState(
                path="root.shop",
                leaf=True,
                pods=18,
                usage={"cpu": 20000, "memory": 30 * gib},
                guaranteed={"cpu": 16000},
                max={"cpu": 32000, "memory": 64 * gib},
            ),
            QueueState(
                path="root.ml",
                pods=24,
                usage={"cpu": 41000, "memory": 60 * gib, "nvidia.com/gpu": 8},
                guaranteed={"cpu": 10000, "nvidia.com/gpu": 4},
                max={"cpu": 41000, "nvidia.com/gpu": 8},
            ),
            QueueState(path="root.ml.training", leaf=True, pods=24, usage={"cpu": 41000, "memory": 60 * gib}),
        ),
    )


class MadeUpCluster(ClusterReader):
    """Reads one world, and its pending pods, of no API server."""

    def __init__(self, nodes: int = 60) -> None:
        super().__init__(cast("Api", None), cast("Bus", None), ConfigSettings())
        self.nodes = nodes
        self.readings = 0
        self.world: World | None = None

    async def read(self) -> World:
        """Make the world at the first reading."""
        self.readings += 1
        self.world = self.world or cluster(self.nodes)
        return self.world

    async def pod(self, namespace: str, name: str) -> bytes | None:
        """Return one of the pending pods."""
        if namespace == "shop" and name.startswith("waiting-"):
            number = int(name.removeprefix("waiting-"))
            return msgspec.json.encode(_pod(namespace, name, "", "3500m", 5 * number))
        return None

    async def ledger(self, now: datetime) -> Ledger:
        """Nothing is in flight."""
        return Ledger()


class _NoBus:
    """Answers about queues; nothing else is asked: stories come from `Told`."""

    async def request_queues(self, request: bytes, timeout_seconds: float) -> bytes:
        return msgspec.json.encode(queue_report(datetime.now(UTC)))


class Told(Sources):
    """Tells stories of messages, as the streams would, and of a cluster that is made up."""

    def __init__(self, reader: Reader, nodes: int) -> None:
        super().__init__(cast("Bus", _NoBus()), cast("Api", None), ConfigSettings(), reader)
        self.cluster: MadeUpCluster = MadeUpCluster(nodes)
        self.messages: list[Message] = []

    async def explain(self, what: str) -> Explanation:
        """Return what the messages say of a pod, an order or a decision. Raises NotKept."""
        namespace, _, name = what.rpartition("/")
        made = [one for one in self._told() if what in self._about(one)]
        taken = [
            one
            for one in self._told()
            if one.order and any(f"{pod.namespace}/{pod.name}" == what for pod in one.order.victims)
        ]
        pending = what.startswith("shop/waiting-")
        if not (made or taken or pending):
            raise NotKept(f"nothing is known of {what}")
        state = {"ord": "order", "dec": "decision"}.get(what[:3], "preempted" if taken else "placed")
        return Explanation(
            state="pending" if pending else state,
            namespace=namespace,
            name=name if namespace else "",
            uid=taken[-1].victims[0].uid if taken else "",
            taken_by=tuple(taken),
            made_room=tuple(one for one in made if one.order is not None),
            pending=None,
            last_decision=next((one.decision for one in made if one.decision), None),
            preempted_by_others=tuple(
                one
                for one in self.messages
                if isinstance(one, Comparison)
                and one.default_preemption
                and any(f"{pod.namespace}/{pod.name}" == what for pod in one.default_preemption.victims)
            ),
        )

    def _told(self) -> Iterator[Story]:
        orders = {one.decision_id: one for one in self.messages if isinstance(one, EvictionOrder)}
        outcomes = {one.order_id: one for one in self.messages if isinstance(one, Outcome)}
        for one in self.messages:
            if isinstance(one, DecisionRecord):
                order = orders.get(one.decision_id)
                outcome = outcomes.get(order.order_id) if order else None
                yield Story(order=order, outcome=outcome, decision=one)

    def _about(self, story: Story) -> tuple[str, ...]:
        pod = story.decision.preemptor if story.decision else None
        return (
            story.order.order_id if story.order else "",
            story.decision.decision_id if story.decision else "",
            f"{pod.namespace}/{pod.name}" if pod else "",
        )


@dataclass
class MadeUpPage:
    """The application, what it is made of, and how many messages it has.

    `loaded`: whether it has read all of its streams.
    """

    count: int = 400
    nodes: int = 60
    loaded: bool = True
    gate: Gate = field(default_factory=lambda: LocalGate(TOKEN))
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __post_init__(self) -> None:
        self.reader = Reader(cast("Bus", _NoBus()), timedelta(days=1))
        self.told = Told(self.reader, self.nodes)
        self.cluster = self.told.cluster
        for message in story_messages(self.count, self.now):
            self.put(message)
        if self.loaded:
            self.reader.timeline.complete()
        status = as_a(ComponentStatus, MESSAGES["component-status.full"])
        planner = replace(status, component="planner", mode="enforce", namespace_modes={}, leading=True)
        self.reader.parts = [replace(planner, brake="", breaker="", trouble="", loops="")]
        self.app: App = page_app(Site(gate=self.gate, hosts=(HOST, "localhost")), self.told)

    def put(self, message: Message) -> None:
        """Let a message come, as from a stream."""
        self.told.messages.append(message)
        self.reader.put(cast("Any", message), datetime.now(UTC))

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve it from a thread; yield its address, without a token."""
        where = listening(HOST, 0)
        port = where.getsockname()[1]
        loop = asyncio.new_event_loop()

        async def run() -> None:
            await asyncio.gather(serve(self.app, where), self.reader.tell())

        task: list[asyncio.Task[None]] = []

        def start() -> None:
            asyncio.set_event_loop(loop)
            task.append(loop.create_task(run()))
            try:
                loop.run_until_complete(task[0])
            except asyncio.CancelledError:
                pass
            finally:
                loop.close()

        thread = threading.Thread(target=start)
        thread.start()
        try:
            yield f"http://{HOST}:{port}"
        finally:
            loop.call_soon_threadsafe(task[0].cancel)
            thread.join(20)
