"""`makeway why` and `makeway replay` of what lowered quotas took, on a real NATS."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.ids import decision_id, order_id
from makeway.bus.messages import DecisionRecord, EvictionOrder
from makeway.dev.samples import MESSAGES
from unit.cli.test_connect import makeway

pytestmark = pytest.mark.nats


async def quota_order(bus: Bus) -> EvictionOrder:
    """An order of a lowered quota; it and its decision are in their streams."""
    await bus.ensure_streams()
    now = datetime.now(UTC)
    decision, order = MESSAGES["decision.quota"], MESSAGES["order.minimal"]
    assert isinstance(decision, DecisionRecord)
    assert isinstance(order, EvictionOrder)
    decision = replace(decision, decision_id=decision_id(now))
    order = replace(
        order,
        order_id=order_id(now),
        queue=decision.queue,
        decision_id=decision.decision_id,
        victims=decision.victims,
    )
    await bus.publish_decision(decision)
    await bus.publish_order(order, 0)
    return order


async def test_an_order_of_a_quota_is_explained_by_its_decision(bus: Bus, nats_server: NatsServer) -> None:
    order = await quota_order(bus)

    code, out, err = await makeway("why", order.order_id, f"--nats-url={nats_server.url}")

    assert (code, err) == (0, "")
    assert f"decision {order.decision_id} of" in out
    assert "root.shop used cpu 5, memory 100, with a maximum of memory 55" in out
    assert "freed: memory 40 of memory 45 too much" in out
    assert "share: root.shop.web memory 45" in out
    assert "short: memory 5" in out
    assert "blocked: queue-guaranteed: 1 pod kept by the guarantee of root.shop" in out
    assert "no longer kept" not in out


async def test_the_decision_of_a_quota_is_in_the_answer_as_data(bus: Bus, nats_server: NatsServer) -> None:
    order = await quota_order(bus)

    code, out, _ = await makeway("why", order.order_id, "-o", "json", f"--nats-url={nats_server.url}")

    assert code == 0
    (story,) = json.loads(out)["madeRoom"]
    assert story["decision"]["quota"]["need"] == {"memory": 45}


async def test_a_quota_that_was_not_recorded_is_said_to_be_so_and_not_to_be_unknown(
    bus: Bus, nats_server: NatsServer
) -> None:
    order = await quota_order(bus)

    code, _, err = await makeway("replay", order.order_id, f"--nats-url={nats_server.url}")

    assert code == 1
    assert f"{order.decision_id} was not recorded" in err
