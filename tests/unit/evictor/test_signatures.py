"""An evictor that requires signatures: forged orders are put aside, and open its breaker."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from builders_keys import KEYS, PUBLIC_DATA, signatures
from makeway.bus.messages import EvictionOrder, Void
from makeway.bus.orders import voided
from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.bus.subjects import Subjects
from makeway.evictor.act.work import EvictorParts
from makeway.evictor.intake.service import Evictor, EvictorSettings
from makeway.evictor.limits.breaker import OPENS_AT, Breaker
from makeway.evictor.limits.caps import Caps
from makeway.evictor.metrics import EvictorMetrics
from unit.evictor.building import CLUSTER, NOW, make_order
from unit.evictor.fakes import UNAVAILABLE, FakeDelivery
from unit.evictor.test_service import World, running

ORDER = make_order("a")
SUBJECT = Subjects().order(ORDER)
PLANNER = signatures("require", SigningKind.ORDER)
OVER = replace(ORDER, not_after=NOW - timedelta(hours=1))
VOID = voided(ORDER, Void(reason="late", message="it was"))


class SignedWorld(World):
    """The same evictor, with a breaker and required signatures."""

    def __init__(self) -> None:
        super().__init__(*running("a"))
        metrics = EvictorMetrics(CollectorRegistry())
        self.real_breaker = Breaker(self.clock, metrics)
        self.keys = signatures("require", SigningKind.OUTCOME)
        self.evictor = Evictor(
            EvictorSettings(cluster_uid=CLUSTER, identity="evictor-1"),
            EvictorParts(
                cluster=self.cluster,
                records=self.records,
                metrics=metrics,
                events=self.events,
                mode_guard=self.mode_guard,
                queue_guard=self.evictor.parts.queue_guard,
                caps=Caps(self.mode_guard.rates, "evictor-1", metrics),
            ),
            clock=self.clock,
            slots=self.slots,
            signatures=self.keys,
            forged=lambda detail: self.real_breaker.report("signatures", detail),
        )

    async def handle(
        self, data: bytes, deliveries: int = 1, subject: str = SUBJECT, published_at: datetime = NOW
    ) -> FakeDelivery:
        delivery = FakeDelivery(data, deliveries, subject)
        delivery.published_at = published_at
        await self.evictor.handle(delivery)
        return delivery


def written(by: Signatures, order: EvictionOrder = ORDER, subject: str = SUBJECT) -> bytes:
    return by.wrap(order, "makeway/scheduler/test", subject)


def by_key(key: SigningKey) -> bytes:
    return written(Signatures(signing={SigningKind.ORDER: key}))


FORGED = {
    "no signature": (written(Signatures()), "unsigned"),
    "a retired key": (by_key(SigningKey.new()), "unknown-key"),
    "the evictor's own key": (by_key(KEYS[SigningKind.OUTCOME]), "unknown-key"),
    "the planner's other key": (by_key(KEYS[SigningKind.CONTROL]), "unknown-key"),
    "another subject": (
        written(PLANNER, subject=Subjects().orders_of("pod", "another")),
        "invalid-signature",
    ),
    "a changed byte": (written(PLANNER).replace(b'"a-uid"', b'"b-uid"'), "invalid-signature"),
}


@pytest.mark.parametrize(("data", "reason"), FORGED.values(), ids=FORGED)
async def test_a_forged_order_is_put_aside_and_nothing_is_read_or_written_for_it(
    data: bytes, reason: str
) -> None:
    world = SignedWorld()

    delivery = await world.handle(data)

    assert delivery.said == [f"term {reason}"]
    assert world.records.parked == [(data, reason)]
    assert world.cluster.calls == []
    assert world.records.outcomes == {}
    assert world.records.looked_for == []


async def test_an_order_that_the_planner_signed_is_carried_out() -> None:
    world = SignedWorld()
    world.records.orders[ORDER.preemptor.uid if ORDER.preemptor else ""] = ORDER

    delivery = await world.handle(written(PLANNER))

    assert delivery.said == ["ack"]
    assert world.records.outcomes[ORDER.order_id].result == "succeeded"


async def test_ten_forged_orders_open_the_breaker() -> None:
    world = SignedWorld()

    for _ in range(OPENS_AT["signatures"] - 1):
        await world.handle(FORGED["no signature"][0])
    before = world.real_breaker.everywhere()
    await world.handle(FORGED["a changed byte"][0])

    assert before == ""
    assert "invalid-signature" in world.real_breaker.everywhere()


async def test_a_forged_order_that_comes_again_is_counted_once() -> None:
    world = SignedWorld()
    world.records.park_failures.extend([UNAVAILABLE] * 20)

    for deliveries in range(1, 21):
        await world.handle(FORGED["no signature"][0], deliveries)

    assert world.real_breaker.everywhere() == ""


@pytest.mark.parametrize(
    ("data", "on"),
    [
        (written(PLANNER), Subjects().orders_of("pod", "another")),
        (written(Signatures(signing={SigningKind.ORDER: SigningKey.new()}), OVER), SUBJECT),
        (written(Signatures(), VOID), SUBJECT),
    ],
    ids=["on another subject", "over, by a key of before", "of a void"],
)
async def test_copies_of_orders_which_readers_can_have_nats_store_do_not_open_the_breaker(
    data: bytes, on: str
) -> None:
    world, later = SignedWorld(), NOW + timedelta(minutes=1)
    world.clock.time = later

    for _ in range(2 * OPENS_AT["signatures"]):
        delivery = await world.handle(data, subject=on, published_at=later)

    assert delivery.said[0].startswith("term ")
    assert world.real_breaker.everywhere() == ""


async def test_orders_of_before_a_key_was_retired_do_not_open_the_breaker() -> None:
    world = SignedWorld()
    await world.clock.sleep(timedelta(minutes=10).total_seconds())

    for _ in range(2 * OPENS_AT["signatures"]):
        await world.handle(FORGED["a retired key"][0])

    assert world.real_breaker.everywhere() == ""
    assert len(world.records.parked) == 2 * OPENS_AT["signatures"]


async def test_orders_by_a_key_that_was_replaced_a_moment_ago_do_not_open_the_breaker() -> None:
    world = SignedWorld()
    renewed = {**PUBLIC_DATA, "order.pem": SigningKey.new().public_pem()}
    world.keys.retired, world.keys.public = (world.keys.public,), PublicKeys.parse(renewed)
    later = NOW + timedelta(hours=1)
    world.clock.time = later

    for _ in range(2 * OPENS_AT["signatures"]):
        delivery = await world.handle(written(PLANNER), published_at=later)

    assert world.real_breaker.everywhere() == ""
    assert delivery.said == ["term retired-key"]
    assert world.cluster.calls == []


@pytest.mark.parametrize(("seconds", "opens"), [(9, False), (10, True)])
async def test_a_key_that_may_have_counted_until_the_start_is_no_evidence(seconds: int, opens: bool) -> None:
    world = SignedWorld()
    world.clock.time = NOW + timedelta(seconds=seconds)

    for _ in range(OPENS_AT["signatures"]):
        await world.handle(FORGED["a retired key"][0], published_at=world.clock.time)

    assert bool(world.real_breaker.everywhere()) is opens
