"""`makeway why` and `makeway replay` of what lowered quotas took, on a real NATS."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from msgspec.structs import replace

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.decisions import DecisionRecord
from makeway.bus.ids import decision_id, order_id
from makeway.bus.messages import EvictionOrder
from makeway.dev.samples import MESSAGES
from served import served
from unit.cli.test_connect import kubeconfig, makeway

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

    _, out, _ = await makeway("why", order.order_id, "-o", "json", f"--nats-url={nats_server.url}", exits=0)

    (story,) = json.loads(out)["madeRoom"]
    assert story["decision"]["quota"]["need"] == {"memory": 45}


async def test_the_beginning_of_an_id_is_enough_where_unique(bus: Bus, nats_server: NatsServer) -> None:
    order, other = (
        await quota_order(bus),
        replace(MESSAGES["order.full"], order_id=order_id(datetime.now(UTC))),
    )
    assert isinstance(other, EvictionOrder)
    await bus.publish_order(other, 0)
    url = f"--nats-url={nats_server.url}"

    code, out, err = await makeway("why", order.order_id[:20], url)
    several = await makeway("why", "ord-", url)
    none = await makeway("why", "ord-00", url)

    assert (code, err) == (0, "")
    assert f"order {order.order_id} of" in out
    assert several[0] == 1
    assert f"several ids begin so: {order.order_id}, {other.order_id}; give more than ord-" in several[2]
    assert (none[0], none[2]) == (1, "makeway: there is no order ord-00; orders are kept for a week\n")
    assert f"{order.decision_id} was not recorded" in (await makeway("replay", order.order_id[:20], url))[2]


async def test_a_decision_is_explained_with_an_order_or_without(bus: Bus, nats_server: NatsServer) -> None:
    order = await quota_order(bus)
    now = datetime.now(UTC)
    plan = MESSAGES["decision.full"]
    assert isinstance(plan, DecisionRecord)
    refusal = replace(plan, status="refused", mode="enforce", victims=(), candidates=())
    plan = replace(plan, decision_id=decision_id(now), mode="enforce", diagnosis=None)
    refusal = replace(refusal, decision_id=decision_id(now))
    for one in (plan, refusal):
        await bus.publish_decision(one)
    url = f"--nats-url={nats_server.url}"

    carried_out = await makeway("why", order.decision_id[:22], url)
    dropped = await makeway("why", plan.decision_id, url)
    refused = await makeway("why", refusal.decision_id, url)

    assert f"order {order.order_id} of" in carried_out[1]
    assert "shop/urgent (priority 1000): no order came of it\n" in dropped[1]
    assert "  - batch/" in dropped[1]
    assert "shop/urgent (priority 1000): refused\n" in refused[1]
    assert (await makeway("why", "dec-00", url))[0] == 1


async def test_an_unrecorded_quota_is_called_so_and_not_unknown(bus: Bus, nats_server: NatsServer) -> None:
    order = await quota_order(bus)

    _, _, err = await makeway("replay", order.order_id, f"--nats-url={nats_server.url}", exits=1)

    assert f"{order.decision_id} was not recorded" in err


async def test_without_the_rights_to_plan_again_the_pods_condition_is_told(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    """As for a user with the ClusterRole view, who may list all pods and no PriorityClasses."""
    await bus.ensure_streams()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    pod = {
        "metadata": {"namespace": "shop", "name": "web", "uid": "u"},
        "spec": {},
        "status": {"phase": "Pending", "conditions": [condition]},
    }

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/pods/web"):
            return web.json_response(pod)
        if request.path.endswith("/selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}})
        status = {"kind": "Status", "reason": "Forbidden", "message": "priorityclasses is forbidden"}
        return web.json_response(status, status=403)

    async with served(answer) as port:
        where = f"--kubeconfig={kubeconfig(tmp_path, f'http://127.0.0.1:{port}')}"
        _, out, err = await makeway("why", "shop/web", where, f"--nats-url={nats_server.url}", exits=0)

    assert out == "shop/web is pending: Unschedulable: no room\n"
    assert "unblock the pod is not known: no permission: priorityclasses is forbidden" in err
