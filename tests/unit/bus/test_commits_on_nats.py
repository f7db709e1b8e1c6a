"""Commit and order over a real nats-server, with signatures required: from the offer to the evictors."""

import pytest
from prometheus_client import CollectorRegistry

from builders_keys import signatures
from fixtures_nats import ConnectBus
from makeway.bus import codec
from makeway.bus.client import Bus
from makeway.bus.commit import CommitReply, CommitRequest
from makeway.bus.messages import EvictionOrder
from makeway.bus.orders import OrderWriter
from makeway.bus.records import Last
from makeway.bus.signing.keys import SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.core.policy.brake import RELEASED
from makeway.core.policy.document import Policy
from makeway.planner.commit.committer import Committer
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.orders.ledger import Ledger
from makeway.planner.service.orders.commit_judge import CommitJudge
from makeway.planner.snapshot.state import Snapshot
from narrowing import as_a, there
from unit.planner.building import NOW
from unit.planner.test_commit_judge import commit, offer, snapshot

pytestmark = pytest.mark.nats


async def serving(connect_bus: ConnectBus, seen: Snapshot, nominated: dict[str, str]) -> Bus:
    """A planner that leads, with the keys that a planner has."""
    bus = await connect_bus("planner/p")
    bus.signatures = signatures("require", SigningKind.ORDER, SigningKind.CONTROL)
    ledger = Ledger()
    committer = Committer(
        cluster_uid="cluster",
        identity="p",
        subjects=bus.subjects,
        signatures=bus.signatures,
        unsynced=lambda: "",
        pod=seen.pods.get,
        now=lambda: NOW,
        judge=CommitJudge(
            seen, ledger, nominated, "enforce", policy=Policy, brake=lambda: RELEASED, versions={}
        ).judge,
        ledger=ledger,
        writer=OrderWriter(bus),
        metrics=PlannerMetrics(CollectorRegistry()),
    )
    await bus.serve_commits(committer.handle)
    return bus


async def asked(bus: Bus, request: CommitRequest) -> CommitReply:
    return codec.decode(CommitReply, await bus.request_commit(codec.encode(request), 5))


def sealed(planner: Bus, by: Signatures | None = None) -> str:
    return (by or planner.signatures).wrap(offer(), planner.source, planner.subjects.commit).decode()


async def test_a_commit_becomes_an_order_that_evictors_take(bus: Bus, connect_bus: ConnectBus) -> None:
    planner = await serving(connect_bus, snapshot(), {"urgent": "n1"})
    nominator, evictor = await connect_bus("nominator/n"), await connect_bus("evictor/e")
    evictor.signatures = signatures("require", SigningKind.OUTCOME)
    request = commit("a", "b", offer=sealed(planner))

    first, again = await asked(nominator, request), await asked(nominator, request)

    assert first == again
    last = as_a(Last, await evictor.last_order("urgent"))
    assert isinstance(last.message, EvictionOrder)
    assert first.order == last.message
    assert {one.uid for one in last.message.victims} == {"a", "b"}
    info = await bus.jetstream.api("STREAM.INFO.MAKEWAY_ORDERS")
    assert info["state"]["messages"] == 1


async def test_an_offer_not_signed_by_the_planner_is_worth_nothing(bus: Bus, connect_bus: ConnectBus) -> None:
    planner = await serving(connect_bus, snapshot(), {"urgent": "n1"})
    forged = sealed(planner, signatures("off", SigningKind.CONTROL, SigningKind.OUTCOME))

    reply = await asked(await connect_bus("nominator/n"), commit("a", offer=forged))

    assert there(reply.void).reason == "not-offered"
    assert await planner.last_order("urgent") is None
