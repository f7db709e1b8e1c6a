"""Preemptors that are all alike, on nodes of their own: what was deleted for them is counted.

The nodes are full of pods of one size, and a taint keeps everyone else away. Preemptors of that size and of
one priority come steadily and stay, so that each needs one victim: no more may be deleted than preemptors are
bound, and one that takes the room of another leaves that one without.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from integration.cluster import RunningCluster
from integration.waiting import NotYet, until
from makeway.dev import nodes
from makeway.dev.checker.history import Streams
from makeway.dev.checker.orders import OrderHistory, Orders
from makeway.runtime.kube import Api, ApiError, ApiUnavailable
from makeway.runtime.lease import LeaseSettings

NAMESPACE = "camp-counted"
PER_NODE = 100
SECONDS_APART = 5.0
"""Between two preemptors."""
PATIENCE_SECONDS = 180.0
LED_WITHIN = timedelta(seconds=LeaseSettings.duration + 5)
"""So long after the death of the leading planner a preemptor is bound that has nothing else to wait for."""
RESOLUTION = timedelta(seconds=1)
"""Of the times that the API server writes into pods."""

_TAINT = "camp.example/counted"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"


@dataclass(frozen=True)
class Preemptor:
    """One that needs the room of one victim. `bound`: None while it waits; both times are whole seconds."""

    uid: str
    name: str
    created: datetime
    bound: datetime | None


@dataclass(frozen=True)
class Deaths:
    """A storm in which planners were killed while they committed, and nothing else was done to the cluster.

    at: when each was killed. The last one's Lease was left to end by itself.
    """

    begin: datetime
    end: datetime
    at: tuple[datetime, ...] = ()


@dataclass(frozen=True)
class Counted:
    """What there is in the end. `gone`: so many victims are there no more."""

    preemptors: tuple[Preemptor, ...] = ()
    gone: int = 0
    orders: Mapping[str, Sequence[OrderHistory]] = field(default_factory=dict)
    """Those of each preemptor, by its UID, oldest first; voids are none."""
    unbound: Collection[str] = ()
    """UIDs of preemptors whose binding failed: kube-scheduler ends their nominations, and equals may come."""

    def findings(self, storms: Sequence[Deaths] = ()) -> list[str]:
        """Return what must not be: too many victims, a robbed preemptor, a second order, a late binding."""
        bound = [one for one in self.preemptors if one.bound is not None]
        found = [f"preemptor {one.name} is not bound" for one in self.preemptors if one.bound is None]
        if self.gone != len(bound):
            found.append(f"{self.gone} victims are gone for {len(bound)} preemptors that are bound")
        lent = sum(self._served(one) - 1 for one in bound if one.uid in self.unbound)
        for one in sorted(bound, key=self._served):
            served = self._served(one)
            if served == 0 and lent > 0:
                lent -= 1
            elif served != 1 and one.uid not in self.unbound:
                ends = ", ".join(map(_told, self.orders.get(one.uid, ()))) or "none"
                found.append(f"preemptor {one.name} is bound with {served} victims; its orders: {ends}")
        for storm in storms:
            found += self._of_storm(storm)
        return found

    def _served(self, one: Preemptor) -> int:
        return sum(map(removed, self.orders.get(one.uid, ())))

    def _of_storm(self, storm: Deaths) -> list[str]:
        found = []
        for one in self.preemptors:
            orders = [order for order in self.orders.get(one.uid, ()) if not order.did_nothing]
            if storm.begin <= one.created < storm.end and len(orders) > 1:
                found.append(f"{one.name}, of a storm of deaths, has {', '.join(map(_told, orders))}")
        found += [
            f"{name} was bound {waited.total_seconds():.0f} s after the last death of a storm"
            for name, waited in self.waited(storm)
            if waited > LED_WITHIN + RESOLUTION
        ]
        return found

    def waited(self, storm: Deaths) -> list[tuple[str, timedelta]]:
        """Return how long each preemptor that met the storm's last death waited, with its name."""
        if not storm.at:
            return []
        last = storm.at[-1]
        return [
            (one.name, one.bound - max(last, one.created))
            for one in self.preemptors
            if one.created <= last + LED_WITHIN and one.bound is not None and one.bound > last
        ]

    def counts(self, storms: Sequence[Deaths]) -> dict[str, int | float]:
        """Return the numbers of a run."""
        bound = sum(one.bound is not None for one in self.preemptors)
        waits = sorted(waited.total_seconds() for storm in storms for _, waited in self.waited(storm))
        longest = {"longest wait after a leader's death, s": round(waits[-1], 1)} if waits else {}
        return {
            "equal preemptors bound": bound,
            "their victims deleted": self.gone,
            "their orders": sum(map(len, self.orders.values())),
            "planners killed within a commit": sum(len(storm.at) for storm in storms),
            "preemptors that met a leader's death": len(waits),
            **longest,
        }


def removed(order: OrderHistory) -> int:
    """Count the victims that an order has removed; an evictor that takes it over finds them gone."""
    victims = () if order.outcome is None else order.outcome.victims
    return sum(victim.result in ("deleted", "gone") for victim in victims)


def _told(order: OrderHistory) -> str:
    end = "without an outcome" if order.outcome is None else order.outcome.result
    return f"{order.order.order_id} {end} ({removed(order)} removed)"


class Preemptors:
    """Makes victims and preemptors on a running cluster."""

    def __init__(self, cluster: RunningCluster, api: Api, seconds: float) -> None:
        self._cluster = cluster
        self._api = api
        self._nodes = int(seconds / SECONDS_APART) // PER_NODE + 1

    @property
    def victims(self) -> int:
        """How many there are in the beginning."""
        return self._nodes * PER_NODE

    async def fill(self) -> None:
        """Make nodes and victims, and wait until there is no room."""
        for number in range(1, self._nodes + 1):
            node = nodes.manifest(f"counted-{number}", cpu=f"{PER_NODE * 100}m")
            node["metadata"]["labels"][_TAINT] = "true"
            node["spec"] = {"taints": [{"key": _TAINT, "effect": "NoSchedule"}]}
            self._cluster.owned.api.request("POST", "/api/v1/nodes", node)
        for number in range(self.victims):
            await self._create(f"low-{number}", "low")

        async def full() -> bool:
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in await _pods(self._api))
            if bound < self.victims:
                raise NotYet(f"{bound} of {self.victims} are bound")
            return True

        await until("the counted nodes are full", full, seconds=PATIENCE_SECONDS, every=1.0)

    async def run(self) -> None:
        """Go on until cancelled, or until no victim is left."""
        for number in range(self.victims):
            await asyncio.sleep(SECONDS_APART)
            # One that could not be made, or whose answer was lost, is no preemptor too many.
            with suppress(ApiError, ApiUnavailable, TimeoutError):
                await self._create(f"high-{number}", "high")

    async def counted(self, api: Api, streams: Streams) -> Counted:
        """Read what there is in the end."""
        pods = await _pods(api)
        orders = Orders(streams)
        preemptors = tuple(map(_preemptor, filter(_is_preemptor, pods)))
        return Counted(
            preemptors,
            self.victims - (len(pods) - len(preemptors)),
            {one.uid: orders.of_preemptor(one.uid) for one in preemptors},
            await _unbound(api),
        )

    async def _create(self, name: str, priority: str) -> None:
        requests = {"cpu": "100m"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "priorityClassName": priority,
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {_TAINT: "true"},
                "tolerations": [{"key": _TAINT, "operator": "Exists"}],
                "containers": [
                    {"name": "main", "image": "example.com/none:1", "resources": {"requests": requests}}
                ],
            },
        }
        await self._api.request("POST", _PODS, body=json.dumps(pod).encode())


async def _pods(api: Api) -> list[dict[str, Any]]:
    found = json.loads(await api.request("GET", _PODS))["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


async def _unbound(api: Api) -> frozenset[str]:
    failed = f"{_EVENTS}?fieldSelector=reason%3DFailedScheduling"
    found = json.loads(await api.request("GET", failed))["items"]
    return frozenset(one["involvedObject"]["uid"] for one in found if "Bind plugin" in (one["message"] or ""))


def _is_preemptor(pod: Mapping[str, Any]) -> bool:
    return str(pod["metadata"]["name"]).startswith("high-")


def _preemptor(pod: Mapping[str, Any]) -> Preemptor:
    bound = [
        datetime.fromisoformat(one["lastTransitionTime"])
        for one in pod["status"].get("conditions", ())
        if one["type"] == "PodScheduled" and one["status"] == "True"
    ]
    return Preemptor(
        pod["metadata"]["uid"],
        pod["metadata"]["name"],
        datetime.fromisoformat(pod["metadata"]["creationTimestamp"]),
        bound[0] if bound else None,
    )


@asynccontextmanager
async def preempting(cluster: RunningCluster, seconds: float) -> AsyncIterator[Preemptors]:
    """Have equal preemptors come inside the block."""
    async with cluster.connect() as api:
        preemptors = Preemptors(cluster, api, seconds)
        await preemptors.fill()
        task = asyncio.create_task(preemptors.run())
        try:
            yield preemptors
        finally:
            task.cancel()
