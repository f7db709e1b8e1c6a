"""What a scenario is played on: the administrator's connection, what is seen, and who tells it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder, Outcome
from makeway.dev.api import collection_path
from makeway.dev.demo import manifests
from makeway.dev.demo.narrator import Narrator
from makeway.dev.demo.timeline import PodSeen, Timeline
from makeway.runtime.kube import Api, ApiError

SETTLE_SECONDS = 60.0
"""How long controllers and kubelets may take to have pods running."""

ANSWER_SECONDS = 30.0
"""How long a preemption may take, from the pod's creation to its binding."""

EVICTOR = "system:serviceaccount:makeway-system:makeway-evictor"
KUBELET = "makeway-dev-kwok"
"""Users of the audit log. What plays the kubelets ends a pod that is already leaving."""


@dataclass(frozen=True)
class Preemption:
    """How room was made for a pod that is bound now."""

    bound: PodSeen
    order: EvictionOrder
    outcome: Outcome
    decision: DecisionRecord


@dataclass(frozen=True)
class Stage:
    """What a story calls. Waits raise TimeoutError, of which the runner makes a failed claim."""

    api: Api
    timeline: Timeline
    narrator: Narrator
    audit_log: Path

    async def create(self, objects: Iterable[manifests.Manifest]) -> None:
        """Create objects, in their order."""
        for manifest in objects:
            await self.create_one(manifest)

    async def create_one(self, manifest: manifests.Manifest) -> tuple[str, float]:
        """Create an object; its UID, and the time just before the request was sent."""
        sent = time.time()
        body = json.dumps(manifest).encode()
        created = json.loads(await self.api.request("POST", collection_path(manifest), body=body))
        return str(created["metadata"]["uid"]), sent

    async def patch(
        self, manifest: manifests.Manifest, changes: manifests.Manifest, subresource: str = ""
    ) -> float:
        """Change fields of an object (JSON merge patch); the time just before the request was sent."""
        sent = time.time()
        path = f"{collection_path(manifest)}/{manifest['metadata']['name']}{subresource}"
        body = json.dumps(changes).encode()
        await self.api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
        return sent

    async def hold(self, app: str, pods: int) -> None:
        """Create a budget that allows no disruption of an application's pods."""
        made = manifests.budget(app, pods)
        await self.create_one(made)
        await self.patch(made, manifests.used_up(pods), "/status")

    async def running(self, wanted: dict[str, int]) -> None:
        """Wait until every application has so many pods running."""

        def count() -> bool | None:
            running = [pod.app for pod in self.timeline.living() if pod.running]
            return all(running.count(app) == replicas for app, replicas in wanted.items()) or None

        what = ", ".join(f"{replicas} of {app}" for app, replicas in wanted.items())
        await self.timeline.until(f"running: {what}", count, SETTLE_SECONDS)

    async def until_undeletable(self, app: str) -> None:
        """Wait until the API server refuses to delete an application's pods.

        It is asked with dryRun, so that nothing is deleted.
        """
        pod = next(pod for pod in self.timeline.living() if pod.app == app)
        path = f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/{pod.name}"
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            try:
                await self.api.request("DELETE", path, query={"dryRun": "All"})
            except ApiError as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    return
                raise
            await asyncio.sleep(0.1)
        raise TimeoutError(f"the admission policy is not in force after {SETTLE_SECONDS:g} s")

    def ordered(self) -> set[tuple[str, str]]:
        """Return the names and UIDs of the pods that orders name, as far as they have been read."""
        orders = (one for one in self.timeline.records if isinstance(one, EvictionOrder))
        return {(victim.name, victim.uid) for order in orders for victim in order.victims}

    async def bound(self, uid: str, name: str) -> PodSeen:
        """Wait until a pod is bound."""
        first = self.timeline.first
        return await self.timeline.until(
            f"{name} bound", lambda: first(lambda p: p.uid == uid and p.node != ""), ANSWER_SECONDS
        )

    async def preemption(self, uid: str, name: str) -> Preemption:
        """Wait until a pod is bound, and for the messages about how room was made for it."""
        bound = await self.bound(uid, name)
        order, outcome = await self.last_outcome(uid)
        return Preemption(bound, order, outcome, await self.decision_of(order))

    def tell(self, made: Preemption, *, nominator: str = "", scheduler: str = "") -> None:
        """Put a preemption into the timetable. `nominator`, `scheduler`: " by" whom, where that is said."""
        narrator, first, order = self.narrator, self.timeline.first, made.order
        narrator.decision(made.decision)
        if nominated := first(lambda pod: pod.uid == made.bound.uid and pod.nominated_node != ""):
            text = f"nominated to {nominated.nominated_node}{nominator}"
            narrator.nominated(nominated.at, order, text)
        narrator.order(order)
        for victim in order.victims:
            leaving = first(lambda pod, v=victim.uid: pod.uid == v and (pod.leaving or pod.deleted))  # type: ignore[misc]
            narrator.carried_out(leaving.at if leaving else None, order, f"{victim.name} leaves")
        narrator.outcome(made.outcome)
        narrator.bound(made.bound.at, order, f"{made.bound.name} bound to {made.bound.node}{scheduler}")
        narrator.timetable()

    async def decision(self, uid: str, name: str) -> DecisionRecord:
        """Wait for the first decision about a pod."""
        decision = self.timeline.decision
        return await self.timeline.until(f"a decision about {name}", lambda: decision(uid), ANSWER_SECONDS)

    async def decision_of(self, order: EvictionOrder) -> DecisionRecord:
        """Wait for the decision that an order carries out, which is stored after the order."""
        decision_of = self.timeline.decision_of
        what = f"the decision of order {order.order_id}"
        return await self.timeline.until(what, lambda: decision_of(order), ANSWER_SECONDS)

    async def last_outcome(self, uid: str) -> tuple[EvictionOrder, Outcome]:
        """Wait until a preemptor's last order has its outcome; of one that is bound, the one that made room.

        The watch of pods may be ahead of the streams, which are polled.
        """

        def ask() -> tuple[EvictionOrder, Outcome] | None:
            orders = self.timeline.orders(uid)
            outcome = self.timeline.outcome(orders[-1].order_id) if orders else None
            bound = self.timeline.first(lambda pod: pod.uid == uid and pod.node != "")
            if outcome is None or (bound is not None and outcome.result != "succeeded"):
                return None
            return orders[-1], outcome

        return await self.timeline.until("an outcome", ask, ANSWER_SECONDS)
