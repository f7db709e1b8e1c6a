"""Whose turn it is in a round: no pod, and no number of pods, keeps others from theirs."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from background import background
from builders_bus import make_order, make_preemptor
from makeway.bus import codec
from makeway.bus.errors import BusError, BusUnavailable, Malformed
from makeway.bus.messages import API_VERSION, StreamPosition
from makeway.bus.plan import TOO_LATE, PlanReply, PlanRequest, Refusal
from makeway.core.k8s.objects import Pod
from makeway.core.policy.brake import RELEASED, Brake
from makeway.nominator.cluster import StoredPod
from makeway.nominator.metrics import NominatorMetrics
from makeway.nominator.parts import NominatorParts
from makeway.nominator.pending import PendingPods, PriorityClasses
from makeway.nominator.questions import Questions
from makeway.nominator.service import UNANSWERED, Nominator
from makeway.runtime.kube import ApiUnavailable
from unit.nominator.test_decide import a_class, a_pod


def refused(reason: str = "NoRoom", status: Any = "refused") -> Callable[[str], PlanReply]:
    return lambda asked: PlanReply(
        api_version=API_VERSION,
        request_id=asked,
        planner="p",
        status=status,
        refusal=Refusal(reason=reason, message="why"),
    )


class World:
    """A nominator before a planner that answers by the name of the pod; `asked`: for which, in turn."""

    def __init__(self) -> None:
        self.seconds, self.registry = 0.0, CollectorRegistry()
        self.brake = RELEASED
        self.stored: dict[str, StoredPod] = {}
        self.answers: dict[str, Callable[[str], PlanReply]] = {}
        self.asked: list[str] = []
        self.requests: list[PlanRequest] = []
        self.pods, classes = PendingPods(), PriorityClasses()
        classes.put(a_class())
        parts = SimpleNamespace(
            bus=self,
            cluster=self,
            pods=self.pods,
            classes=classes,
            streams=SimpleNamespace(state=None, outcomes_read=None, mode=lambda _: "enforce"),
            brake=self,
            metrics=NominatorMetrics(self.registry),
            writer=SimpleNamespace(cluster_uid="cluster-1"),
            synced=lambda: "",
            shadow=None,
        )
        self.nominator = Nominator(cast("NominatorParts", parts))

    def add(self, name: str, *, created: str = "2026-01-31T11:00:00Z", **changes: Any) -> None:
        made = a_pod(name, schedulerName="default-scheduler", **changes)
        made["metadata"]["creationTimestamp"] = created
        raw = msgspec.json.encode(made)
        self.stored[name] = StoredPod(msgspec.json.decode(raw, type=Pod), raw)
        self.pods.put(self.stored[name].pod)

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        return self.stored.get(name)

    async def fresh(self) -> Any:
        return self.brake

    async def request_plan(self, data: bytes, timeout_seconds: float) -> bytes:
        request = codec.decode(PlanRequest, data)
        self.requests.append(request)
        name = msgspec.json.decode(request.classes[0].pod)["metadata"]["name"]
        self.asked.append(name)
        return codec.encode(self.answers.get(name, refused())(request.request_id))

    async def rounds(self, number: int) -> None:
        """Have so many rounds, each a minute after the one before by the clock of silences."""
        for _ in range(number):
            await self.nominator._round()
            self.seconds += 60


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr("makeway.nominator.questions.time", SimpleNamespace(monotonic=lambda: made.seconds))
    return made


def _silent(_: str) -> PlanReply:
    raise BusUnavailable("timeout")


async def test_a_pod_about_which_the_planner_says_nothing_keeps_no_other_from_its_turn(world: World) -> None:
    world.answers["odd"] = _silent
    world.add("odd", created="2026-01-31T10:00:00Z")
    world.add("other")

    await world.rounds(2)

    assert world.asked == ["odd", "other"]


async def test_that_a_plan_was_not_made_in_time_can_be_heard(world: World) -> None:
    world.add("slow")
    waited: list[float] = []
    ask = world.request_plan

    async def request_plan(data: bytes, timeout_seconds: float) -> bytes:
        waited.append(timeout_seconds)
        return await ask(data, timeout_seconds)

    world.request_plan = request_plan  # type: ignore[method-assign]
    await world.rounds(1)

    assert [one.timeout_milliseconds / 1000 for one in world.requests] < waited


async def test_a_pod_is_planned_for_soon_after_a_brake_of_any_length_is_released(world: World) -> None:
    world.brake = Brake(everywhere=True)
    world.add("held")
    attempts = world.nominator._attempts.of(world.pods.by_uid["held-uid"], datetime.now(UTC))
    attempts.failures = 10

    await world.rounds(1)

    assert world.asked == []
    assert attempts.next_at <= datetime.now(UTC) + timedelta(seconds=5)


@pytest.mark.parametrize(("reason", "seconds"), [("NotSynced", 5), (TOO_LATE, 60)])
async def test_a_pod_whose_plan_takes_too_long_waits_as_one_that_is_refused(
    world: World, reason: str, seconds: int
) -> None:
    world.answers["slow"] = refused(reason, "notSynced")
    world.add("slow")
    attempts = world.nominator._attempts.of(world.pods.by_uid["slow-uid"], datetime.now(UTC))
    attempts.failures = 10

    await world.rounds(1)

    waits = attempts.next_at - datetime.now(UTC)
    assert timedelta(seconds=seconds - 1) < waits <= timedelta(seconds=seconds)


async def test_a_pod_that_cannot_be_read_keeps_no_other_from_its_turn(world: World) -> None:
    read = world.pod

    async def pod(namespace: str, name: str) -> StoredPod | None:
        if name == "odd":
            raise ApiUnavailable("an answer that cannot be read")
        return await read(namespace, name)

    world.pod = pod  # type: ignore[method-assign]
    world.add("odd", created="2026-01-31T10:00:00Z")
    world.add("other")

    with pytest.raises(ApiUnavailable):
        await world.rounds(1)
    await world.rounds(1)

    assert world.asked == ["other"]


async def test_orders_of_one_tenant_keep_no_other_pod_from_a_plan_that_the_planner_may_allow(
    world: World,
) -> None:
    for number in range(300):
        preemptor = make_preemptor(f"flood-{number}", name=f"flood-{number}")
        order = make_order(
            f"ord-{number}", preemptor=preemptor, not_after=datetime.now(UTC) + timedelta(minutes=1)
        )
        world.nominator.in_flight.begin(order)
    world.add("other")

    await world.rounds(1)

    assert world.asked == ["other"]


@pytest.mark.parametrize(
    ("error", "label"),
    [(BusUnavailable("timeout"), "unreachable"), (Malformed("unknown-version", "v9"), "unreadable")],
)
async def test_an_answer_of_another_version_is_not_counted_as_none(
    world: World, error: BusError, label: str
) -> None:
    def fails(_: str) -> PlanReply:
        raise error

    world.answers["pod"] = fails
    world.add("pod")

    await world.rounds(1)

    assert world.registry.get_sample_value("makeway_nominator_plans_total", {"result": label}) == 1


async def test_a_nominator_that_leads_no_more_says_nothing_of_the_orders_that_it_saw(world: World) -> None:
    world.add("pod")

    def shown() -> tuple[str, float | None]:
        return world.nominator.trouble(), world.registry.get_sample_value("makeway_nominator_waiting_pods")

    async with background(world.nominator.lead()):
        for _ in range(1000):
            if not world.asked:
                await asyncio.sleep(0.01)
        world.nominator._unanswered = UNANSWERED
        assert "is an evictor running?" in shown()[0]
        assert shown()[1] == 1

    assert shown() == ("", 0)


# ----------------------------------------------------------------------------------- the question about a pod


POD: dict[str, Any] = {
    "metadata": {"namespace": "shop", "name": "urgent", "uid": "P"},
    "spec": {"priority": 1000, "containers": [{"name": "c"}]},
}


async def test_it_tells_how_far_the_outcomes_of_orders_were_read_when_it_was_asked() -> None:
    asked: list[PlanRequest] = []

    async def request_plan(data: bytes, timeout_seconds: float) -> bytes:
        asked.append(codec.decode(PlanRequest, data))
        return codec.encode(
            PlanReply(api_version=API_VERSION, request_id=asked[-1].request_id, planner="p", status="refused")
        )

    streams = SimpleNamespace(outcomes_read=None)
    parts = SimpleNamespace(
        bus=SimpleNamespace(request_plan=request_plan),
        pods=PendingPods(),
        metrics=NominatorMetrics(CollectorRegistry()),
        writer=SimpleNamespace(cluster_uid="cluster-1"),
        streams=streams,
        shadow=None,
    )
    questions = Questions(cast("NominatorParts", parts))
    raw = msgspec.json.encode(POD)
    stored = StoredPod(pod=msgspec.json.decode(raw, type=Pod), raw=raw)

    await questions.ask(stored, "enforce")
    streams.outcomes_read = StreamPosition(created="2026-01-30T08:15:00Z", sequence=512)
    await questions.ask(stored, "enforce")

    assert [one.outcomes_read for one in asked] == [None, streams.outcomes_read]
