"""What a shell offers: names of the cluster, and nothing where there are none to be had."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.decisions import DecisionRecord
from makeway.bus.ids import decision_id, order_id
from makeway.bus.messages import API_VERSION, EvictionOrder
from makeway.bus.queue_report import QueueReport, QueueState
from makeway.cli.main import behind
from makeway.dev.samples import MESSAGES
from narrowing import as_a
from unit.cli.test_connect import api_server, kubeconfig, makeway


async def offered(*words: str, **environment: str) -> list[str]:
    """What could stand as the last word."""
    _, out, err = await makeway(
        _MAKEWAY_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS=" ".join(["makeway", *words]),
        exits=None,
        **environment,
    )
    assert err == ""
    return [line.partition("\t")[0] for line in out.split("\n") if line]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("why", "web"), ["web-0", "web-1"]),
        (("why", "-n", "shop", "web-1"), ["web-1"]),
        (("why", "shop/w"), ["shop/web-0", "shop/web-1"]),
        (("why", "x"), []),
        (("history", "-n", "web"), ["web-0", "web-1"]),
        (("mode", "off", "--namespace", "d"), ["db-0"]),
    ],
)
async def test_pods_and_namespaces_are_offered(
    words: tuple[str, ...], names: list[str], tmp_path: Path
) -> None:
    found = {"items": [{"metadata": {"name": name}} for name in ("web-1", "web-0", "db-0")]}

    async with api_server(200, found) as url:
        assert await offered(*words, KUBECONFIG=kubeconfig(tmp_path, url)) == names


async def test_options_are_offered_a_line_each_however_narrow_the_terminal_is() -> None:
    offers = await offered("history", "--", COLUMNS="40")

    assert "--since" in offers
    assert [one for one in offers if not one.startswith("--")] == []


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_nothing_is_offered_or_said_where_it_cannot_be_read(status: int, tmp_path: Path) -> None:
    async with api_server(status, {"kind": "Status", "message": "no"}) as url:
        assert await offered("why", "w", KUBECONFIG=kubeconfig(tmp_path, url)) == []
    assert await offered("why", "w", KUBECONFIG="/nonexistent") == []
    assert await offered("queues", "r", "--nats-url", "nats://127.0.0.1:9") == []
    assert await offered("queues", "r", MAKEWAY_SUBJECT_PREFIX="a..b") == []


@pytest.mark.nats
async def test_nothing_is_said_of_an_api_server_that_takes_its_time(tmp_path: Path) -> None:
    async with api_server(200, {"items": [{"metadata": {"name": "web-0"}}]}, after_seconds=2) as url:
        assert await offered("why", "w", KUBECONFIG=kubeconfig(tmp_path, url)) == ["web-0"]


async def test_orders_and_queues_are_offered(bus: Bus, nats_server: NatsServer) -> None:
    await bus.ensure_streams()
    order = as_a(EvictionOrder, MESSAGES["order.full"])
    order = replace(order, order_id=order_id(datetime.now(UTC)))
    await bus.publish_order(order, 0)
    record = as_a(DecisionRecord, MESSAGES["decision.full"])
    record = replace(record, decision_id=decision_id(datetime.now(UTC)))
    await bus.publish_decision(record)
    states = tuple(QueueState(path=path, leaf=True, pods=0, usage={}, max={}) for path in ("root", "root.a"))
    report = QueueReport(
        api_version=API_VERSION, planner="p", at=datetime.now(UTC), queues=states, revision="r"
    )

    async def answer(message: object) -> None:
        await message.respond(msgspec.json.encode(report))  # type: ignore[attr-defined] # nats-py's Msg

    await bus.connection.client.subscribe(bus.subjects.queues, cb=answer)
    there = {"MAKEWAY_NATS_URL": nats_server.url}

    assert await offered("why", "ord-", **there) == [order.order_id]
    assert await offered("replay", order.order_id[:10], **there) == [order.order_id]
    for command in ("why", "replay"):
        assert await offered(command, "dec-", **there) == [record.decision_id]
    assert await offered("queues", "root.", **there) == ["root.a"]
    assert await offered("history", "--queue", "ro", **there) == ["root", "root.a"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("-n x why y", "why y -n x"),
        ("--context c -nx why y -o json", "why y -o json --context c -nx"),
        ("--namespace=x --kubeconfig=k keys new", "keys new --namespace=x --kubeconfig=k"),
        ("-n x why -- -y", "why -n x -- -y"),
        ("why -n x y", "why -n x y"),
        ("--version", "--version"),
        ("-n", "-n"),
        ("-n x", "-n x"),
    ],
)
def test_options_before_the_command_count_as_behind_it(words: str, meant: str) -> None:
    assert behind(words.split()) == meant.split()
