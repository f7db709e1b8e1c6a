"""Orders for a pod group, written by hand, against a real API server and a real NATS.

There is no scheduler and no planner: two members wait, nominated, for the nodes on which the victims run. The
chart's admission policies are in force, and the checker judges what the evictor did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from builders_bus import make_group
from integration.arming import KILL, Crashes, Failpoints
from integration.builders import make_node, make_pod
from integration.cluster import RunningCluster
from integration.crashing import RECOVERY_SECONDS
from integration.forbidding import UNDELETABLE, deletes_refused
from integration.ganging import groups_path, in_group, pod_group
from integration.invariants import assert_invariants
from integration.space import open_space
from integration.test_evictor_api import Scene, as_victim, events_of, nominate, the, waiting_pod
from integration.waiting import PATIENT_SECONDS, NotYet, until
from makeway.bus.client import Bus
from makeway.bus.messages import EvictionOrder, OrderMember, Outcome
from makeway.bus.nats.publishing import Published
from makeway.bus.records import Last
from makeway.core.k8s.objects import Pod
from makeway.dev import kwok
from makeway.dev.binaries import KUBERNETES
from makeway.dev.options import EVICTOR
from makeway.evictor.judge import decide

pytestmark = pytest.mark.skipif(KUBERNETES.name != "1.37", reason="groups preempt from Kubernetes 1.37 on")

MARK = "default-scheduler: preempting to accommodate a higher priority podgroup"
MEMBERS = ("train-1", "train-2")
VICTIMS = ("a", "b", "c")
"""a and b run on n1, c on n2."""


@pytest.fixture
def cluster(evictor_cluster: RunningCluster) -> RunningCluster:
    """Give a control plane that serves PodGroups, without scheduler and planner."""
    return evictor_cluster


@pytest_asyncio.fixture
async def gang(cluster: RunningCluster, bus: Bus) -> AsyncIterator[GangScene]:
    """Give a test its stage: the group, its members, and their victims."""
    async with open_space(cluster) as space:
        scene = GangScene(space, bus)
        await scene.set_gang()
        yield scene
        # There is no scheduler to try the members again.
        await assert_invariants(space, wait=False)


@pytest.fixture
def failpoints(cluster: RunningCluster) -> Iterator[Failpoints]:
    """Give the evictor's failpoints, none of them armed."""
    points = Failpoints(cluster)
    yield points
    points.disarm()


class GangScene(Scene):
    """Two nodes with running victims, and two members of a gang that are nominated to them."""

    async def set_gang(self) -> None:
        self.nodes = await self.space.add_nodes(make_node("n1"), make_node("n2"))
        policy = {"gang": {"minCount": 2}}
        self.uid = await pod_group(self.space, "train", schedulingPolicy=policy, priorityClassName="high")
        await self.space.run(
            make_pod("a").on("n1").leaves(kwok.NEVER),
            make_pod("b").on("n1").leaves(kwok.NEVER).label(*UNDELETABLE),
            make_pod("c").on("n2").leaves(kwok.NEVER),
        )
        for name, node in zip(MEMBERS, self.nodes, strict=True):
            await self.space.create(waiting_pod(name).spec(**in_group("train")))
            await nominate(self.space, name, node)

    async def group_order(self, **changes: Any) -> EvictionOrder:
        members = [await the(self.space, name) for name in MEMBERS]
        self.node = self.nodes[0]
        fields: dict[str, Any] = {
            "kind": "group",
            "preemptor": None,
            "node": "",
            "node_uid": "",
            "group": make_group(self.uid, namespace=self.space.namespace),
            "members": tuple(
                OrderMember(
                    namespace=self.space.namespace, name=pod.metadata.name, uid=pod.metadata.uid, node=node
                )
                for pod, node in zip(members, self.nodes, strict=True)
            ),
            "victims": tuple([as_victim(await the(self.space, name)) for name in VICTIMS]),
        }
        return await self.order(preemptor_name=MEMBERS[0], **fields | changes)

    async def give(self, order: EvictionOrder) -> None:
        last = await self.bus.last_like(order)
        answer = await self.bus.publish_order(order, last.sequence if isinstance(last, Last) else 0)
        assert isinstance(answer, Published)

    async def carried_out(self, order: EvictionOrder, *, seconds: float = PATIENT_SECONDS) -> Outcome:
        await self.give(order)
        return await self.outcome(order, seconds=seconds)

    async def remove_group(self) -> None:
        """Delete the PodGroup, which a controller keeps for as long as it has pods."""
        await self.space.api.request("DELETE", groups_path(self.space, "train"))

    async def set_min_count(self, count: int) -> None:
        spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
        await self.space.merge(groups_path(self.space, "train"), {"spec": spec})

    def deletes(self) -> list[str]:
        """The victims that the evictor has deleted; trials do not count."""
        events = self.space.audit.events(
            verb="delete", resource="pods", subresource="", namespace=self.space.namespace
        )
        return [e.name for e in events if e.accepted and e.user.endswith(":makeway-evictor")]

    async def nominations(self) -> list[str]:
        pods = [await self.space.pod(name) for name in MEMBERS]
        return [pod.status.nominated_node_name or "" for pod in pods if pod is not None]

    async def stand(self) -> dict[str, Pod]:
        """The victims that are neither gone nor leaving."""
        pods = await self.space.pods()
        return {
            name: pods[name]
            for name in VICTIMS
            if name in pods and pods[name].metadata.deletion_timestamp is None
        }

    async def assert_untouched(self) -> None:
        """No victim was deleted, none is marked, and no nomination of the order's stands."""
        assert self.deletes() == []
        standing = await self.stand()
        assert set(standing) == set(VICTIMS)
        assert all(decide.disruption_target(pod) is None for pod in standing.values())
        assert not any(await self.nominations())


async def events_told(gang: GangScene, name: str, *reasons: str) -> dict[str, str]:
    async def told() -> dict[str, str]:
        found = {event["reason"]: event["note"] for event in await events_of(gang.space, name)}
        if not set(reasons) <= set(found):
            raise NotYet(str(found))
        return found

    return await until(f"events tell of {', '.join(reasons)}", told)


async def test_all_victims_go_and_the_group_is_told(gang: GangScene) -> None:
    outcome = await gang.carried_out(await gang.group_order())

    assert outcome.result == "succeeded", outcome
    assert {one.name: one.result for one in outcome.victims} == dict.fromkeys(VICTIMS, "deleted")
    assert await gang.stand() == {}
    assert await gang.nominations() == gang.nodes
    for name in VICTIMS:
        assert decide.marked_by_scheduler(await the(gang.space, name), MARK)
    told = await events_told(gang, "train", "RoomMade")
    assert told["RoomMade"] == "Evicted 3 pods from 2 nodes"
    assert "Preempted by podgroup " in (await events_told(gang, "c", "Preempted"))["Preempted"]


async def test_a_policy_that_refuses_one_victims_delete_keeps_all_of_them(gang: GangScene) -> None:
    order = await gang.group_order()

    async with deletes_refused(gang.space, "b"):
        outcome = await gang.carried_out(order)

    assert (outcome.result, outcome.reason) == ("failed", "delete-refused")
    assert "this pod may not be deleted" in outcome.message
    await gang.assert_untouched()
    assert outcome.rollback is not None
    assert set(outcome.rollback.nominations_reverted) == {one.uid for one in order.members}
    told = await events_told(gang, "train", "PreemptionFailed")
    assert "No room was made on 2 nodes: delete-refused: 403 Forbidden" in told["PreemptionFailed"]
    assert "this pod may not be deleted" in told["PreemptionFailed"]

    for name, node in zip(MEMBERS, gang.nodes, strict=True):
        await nominate(gang.space, name, node)
    assert (await gang.carried_out(await gang.group_order())).result == "succeeded"


async def remove_member(gang: GangScene) -> None:
    await gang.space.remove("train-2", grace_seconds=0)


async def renew_member(gang: GangScene) -> None:
    await remove_member(gang)
    await gang.space.create(waiting_pod("train-2").spec(**in_group("train")))
    await nominate(gang.space, "train-2", gang.nodes[1])


async def bind_member(gang: GangScene) -> None:
    """Another client binds it to the other node."""
    await gang.space.bind("train-2", gang.nodes[0])


async def move_nomination(gang: GangScene) -> None:
    await nominate(gang.space, "train-2", gang.nodes[0])


async def remove_group(gang: GangScene) -> None:
    await gang.remove_group()


async def lower_min_count(gang: GangScene) -> None:
    await gang.set_min_count(1)


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (remove_member, "members-missing", "train-2 does not exist any more"),
        pytest.param(
            renew_member, "members-missing", "train-2 does not exist any more", marks=pytest.mark.wide
        ),
        pytest.param(bind_member, "members-missing", "train-2 is bound to ", marks=pytest.mark.wide),
        pytest.param(move_nomination, "members-missing", "train-2 is nominated to ", marks=pytest.mark.wide),
        (remove_group, "group-gone", "is being deleted"),
        pytest.param(
            lower_min_count, "group-changed", "minCount is 1, the order is for 2", marks=pytest.mark.wide
        ),
    ],
)
async def test_an_order_whose_group_is_another_by_now_deletes_nothing(
    gang: GangScene, change: Callable[[GangScene], Awaitable[None]], reason: str, words: str
) -> None:
    order = await gang.group_order()
    await change(gang)

    outcome = await gang.carried_out(order)

    assert (outcome.result, outcome.reason) == ("cancelled", reason)
    assert words in outcome.message
    assert gang.deletes() == []
    assert set(await gang.stand()) == set(VICTIMS)
    # What is nominated anew, or elsewhere, is not the order's to end.
    assert (await gang.nominations())[0] == ""


async def test_a_member_that_leaves_while_the_deletions_are_tried_saves_all_victims(
    gang: GangScene, failpoints: Failpoints
) -> None:
    order = await gang.group_order()
    failpoints.arm("evictor.before-dry-run", "hold", hit=3)
    await gang.give(order)
    await failpoints.fired("evictor.before-dry-run")
    await remove_member(gang)
    failpoints.let_go("evictor.before-dry-run")

    outcome = await gang.outcome(order)

    assert (outcome.result, outcome.reason) == ("cancelled", "members-missing")
    await gang.assert_untouched()


@pytest.mark.wide
@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("evictor.barrier-passed", 1),
        ("evictor.after-delete", 1),
        *(
            pytest.param(point, hit, marks=pytest.mark.slow)
            for point, hit in (
                ("evictor.order-received", 1),
                ("evictor.before-mark", 2),
                ("evictor.after-mark", 2),
                ("evictor.before-dry-run", 2),
                ("evictor.before-delete", 1),
                ("evictor.before-delete", 3),
                ("evictor.before-outcome", 1),
                ("evictor.before-ack", 1),
            )
        ),
    ],
)
async def test_an_order_is_carried_out_though_its_evictor_dies(
    gang: GangScene, cluster: RunningCluster, point: str, hit: int
) -> None:
    order = await gang.group_order()

    async with Crashes(cluster, EVICTOR).at(point, KILL, hit=hit) as crashed:
        await gang.give(order)
        await crashed()

    outcome = await gang.outcome(order, seconds=RECOVERY_SECONDS)
    assert outcome.result == "succeeded", outcome
    assert await gang.stand() == {}
    assert sorted(gang.deletes()) == sorted(VICTIMS)
    assert await gang.nominations() == gang.nodes


@pytest.mark.wide
@pytest.mark.parametrize(
    ("point", "hit"),
    [
        ("evictor.after-revert", 1),
        *(
            pytest.param(point, hit, marks=pytest.mark.slow)
            for point, hit in (
                ("evictor.before-rollback", 1),
                ("evictor.before-revert", 1),
                ("evictor.after-revert", 2),
                ("evictor.before-unmark", 1),
                ("evictor.after-unmark", 1),
            )
        ),
    ],
)
async def test_an_order_is_rolled_back_though_its_evictor_dies(
    gang: GangScene, cluster: RunningCluster, point: str, hit: int
) -> None:
    order = await gang.group_order()

    async with deletes_refused(gang.space, "b"):
        async with Crashes(cluster, EVICTOR).at(point, KILL, hit=hit) as crashed:
            await gang.give(order)
            await crashed()
        outcome = await gang.outcome(order, seconds=RECOVERY_SECONDS)

    assert outcome.result in ("failed", "cancelled")
    await gang.assert_untouched()
