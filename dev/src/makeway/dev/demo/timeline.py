"""What happened and when: messages by their own times, pods by when the API server's watch showed them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from makeway.bus.client import Bus
from makeway.bus.codec import unwrap
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.dev.demo.manifests import NAMESPACE
from makeway.runtime.kube import Api

T = TypeVar("T")

Record = DecisionRecord | EvictionOrder | Outcome


@dataclass(frozen=True)
class PodSeen:
    """One watch event of a pod of the demo."""

    at: float
    deleted: bool
    pod: dict[str, Any]

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return str(self.pod["metadata"]["uid"])

    @property
    def app(self) -> str:
        """The application that the pod belongs to."""
        return str(self.pod["metadata"].get("labels", {}).get("app", ""))

    @property
    def node(self) -> str:
        """The node it is bound to, or nothing."""
        return str(self.pod["spec"].get("nodeName") or "")

    @property
    def nominated_node(self) -> str:
        """The node it is nominated to, or nothing."""
        return str(self.pod["status"].get("nominatedNodeName") or "")

    @property
    def leaving(self) -> bool:
        """Whether its deletion has been accepted."""
        return "deletionTimestamp" in self.pod["metadata"]

    @property
    def running(self) -> bool:
        """Whether it runs and is not leaving."""
        return self.pod["status"].get("phase") == "Running" and not self.leaving

    def since(self, condition: str) -> float:
        """Since when a condition is as it is, in seconds since 1970; 0 where there is none."""
        for one in self.pod["status"].get("conditions", []):
            if one["type"] == condition:
                return datetime.fromisoformat(one["lastTransitionTime"]).timestamp()
        return 0.0

    @property
    def disruption_target(self) -> bool:
        """Whether it is marked as about to be preempted."""
        conditions = self.pod["status"].get("conditions", [])
        return any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions)


def when(record: Record) -> float:
    """When its writer decided, ordered or ended it."""
    match record:
        case DecisionRecord():
            return record.at.timestamp()
        case EvictionOrder():
            return record.created_at.timestamp()
        case Outcome():
            return record.finished_at.timestamp()


class Timeline:
    """Everything seen so far. Times are in seconds since 1970."""

    def __init__(self) -> None:
        self.pods: list[PodSeen] = []
        self.records: list[Record] = []
        self._changed = asyncio.Event()

    def living(self) -> list[PodSeen]:
        """The last state of every pod that exists."""
        last: dict[str, PodSeen] = {}
        for seen in self.pods:
            last[seen.uid] = seen
        return [seen for seen in last.values() if not seen.deleted]

    def decision(self, pod_uid: str) -> DecisionRecord | None:
        """The first decision about a pod."""
        return next(iter(self.decisions(pod_uid)), None)

    def decision_of(self, order: EvictionOrder) -> DecisionRecord | None:
        """The decision that an order carries out."""
        decisions = (one for one in self.records if isinstance(one, DecisionRecord))
        return next((one for one in decisions if one.decision_id == order.decision_id), None)

    def decisions(self, uid: str) -> list[DecisionRecord]:
        """The decisions about a pod or a pod group, oldest first."""
        decisions = (one for one in self.records if isinstance(one, DecisionRecord))
        return [one for one in decisions if one.preemptor_uid == uid]

    def refusals(self, pod_uid: str) -> list[DecisionRecord]:
        """The decisions about a pod that nothing helps, oldest first."""
        return [one for one in self.decisions(pod_uid) if one.diagnosis]

    def orders(self, uid: str) -> list[EvictionOrder]:
        """The orders for a pod or a pod group, oldest first."""
        orders = (one for one in self.records if isinstance(one, EvictionOrder))
        return [order for order in orders if order.preemptor_uid == uid]

    def outcome(self, order_id: str) -> Outcome | None:
        """An order's outcome."""
        outcomes = (one for one in self.records if isinstance(one, Outcome))
        return next((one for one in outcomes if one.order_id == order_id), None)

    def first(self, matches: Callable[[PodSeen], bool], after: float = 0) -> PodSeen | None:
        """The first pod event after a time that matches."""
        return next((seen for seen in self.pods if seen.at >= after and matches(seen)), None)

    async def until(self, what: str, ask: Callable[[], T | None], timeout_seconds: float) -> T:
        """Wait until `ask` returns something.

        Raises:
            TimeoutError: it did not in time; the text says what was waited for.
        """
        deadline = time.monotonic() + timeout_seconds
        while not (answer := ask()):
            self._changed.clear()
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"{what}: not seen within {timeout_seconds:g} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), remaining)
        return answer

    def add(self, seen: PodSeen | Record) -> None:
        """Take one more thing that happened."""
        if isinstance(seen, PodSeen):
            self.pods.append(seen)
        else:
            self.records.append(seen)
        self._changed.set()

    async def watch_pods(self, api: Api) -> None:
        """Follow the demo's pods, for ever."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        query = {"watch": "true", "allowWatchBookmarks": "true"}
        async for lines in api.stream(path, query=query, idle_timeout_seconds=300):
            for event in map(json.loads, lines):
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    self.add(PodSeen(time.time(), event["type"] == "DELETED", event["object"]))

    async def watch_bus(self, bus: Bus) -> None:
        """Follow decisions, orders and outcomes, for ever."""
        subjects = bus.subjects
        async with asyncio.TaskGroup() as group:
            for stream in (subjects.decisions_stream, subjects.orders_stream, subjects.outcomes_stream):
                group.create_task(self._watch_stream(bus, stream))

    async def _watch_stream(self, bus: Bus, stream: str) -> None:
        async for message in bus.follow(stream):
            _, record = unwrap(message.data)
            if isinstance(record, EvictionOrder) and record.void is not None:
                continue
            if isinstance(record, DecisionRecord | EvictionOrder | Outcome):
                self.add(record)
