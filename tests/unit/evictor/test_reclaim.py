"""What queues take back in the re-check, as queues, labels and owners change under it."""

from collections.abc import Callable, Iterable

import msgspec
import pytest

from makeway.bus.messages import EvictionOrder
from makeway.core.k8s.objects import Container, OwnerReference, Pod, ResourceRequirements
from makeway.core.policy.document import Policy, QueueRules
from makeway.core.policy.rules import RECLAIM
from makeway.evictor.act import parties
from makeway.evictor.limits.breaker import NEVER_VICTIMS
from makeway.evictor.limits.queue_guard import QueueClaim, claim_of
from makeway.runtime.config import ConfigContent
from unit.evictor.building import (
    PodBuilder,
    a_pod,
    changed,
    make_order,
    make_preemptor,
    make_victim,
    preemptor_pod,
)
from unit.evictor.test_groups import member, unit_order, world_of
from unit.evictor.test_rules import reasons
from unit.evictor.test_service import World, results

QUEUES = """
partitions:
  - preemption: {{enabled: {enabled}}}
    queues:
      - {{name: a, namespaces: [default], resources: {{guaranteed: {{{least}}}}}, properties: {{{fence}}}}}
      - {{name: b, properties: {{{policy}}}}}
"""


def queues(
    enabled: str = "true", least: str = "vcore: 2", fence: str = "", policy: str = ""
) -> Callable[[World], None]:
    text = QUEUES.format(enabled=enabled, least=least, fence=fence, policy=policy)
    return lambda world: world.queues.offer(ConfigContent("queues.yaml", text))


def asking(pod: PodBuilder, path: str, cpu: str = "1", priority: int = 5) -> Pod:
    made = pod.in_queue(path).priority(priority).build()
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu}))
    return changed(made, "spec", containers=(container,))


def world_with(*victims: Pod) -> World:
    world = World(*victims)
    world.cluster.put(asking(preemptor_pod(), "root.a"))
    queues()(world)
    return world


def order_for(*names: str) -> EvictionOrder:
    victims = (make_victim(name, priority=5, rule=RECLAIM) for name in names)
    return make_order(*victims, preemptor=make_preemptor(priority=5))


def relabel(name: str, path: str) -> Callable[[World], None]:
    def change(world: World) -> None:
        pod = world.cluster.pods[name]
        world.cluster.put(changed(pod, "metadata", labels={"queue": path}))

    return change


def grow(world: World) -> None:
    world.cluster.put(asking(preemptor_pod(), "root.a", cpu="3"))


def claim(world: World) -> None:
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)
    world.cluster.put(changed(world.cluster.pods["b"], "metadata", owner_references=(owner,)))
    world.cluster.always_fail("get_daemonset", "d", FORBIDDEN)


def raise_victim(world: World) -> None:
    world.cluster.put(asking(a_pod("b"), "root.b", priority=6))


def exempt(world: World) -> None:
    world.policy = Policy(queues=QueueRules(exempt_namespaces=("default",)))


def unread(world: World) -> None:
    world.queues.offer(ConfigContent("queues.yaml", "partitions: 7"))


from unit.evictor.fakes import FORBIDDEN  # noqa: E402

SPARED = {
    "turned off": queues(enabled="false"),
    "the guarantee is gone": queues(least=""),
    "the guarantee is of something else": queues(least="memory: 1Gi"),
    "the guarantee is less than is asked": queues(least="vcore: 500m"),
    "a fence is put up": queues(fence="preemption.policy: fence"),
    "the other queue lends nothing": queues(policy="preemption.policy: disabled"),
    "the queues cannot be read": unread,
    "the victim is of the preemptor's queue": relabel("b", "root.a"),
    "the preemptor is of the victim's queue": relabel("urgent", "root.b"),
    "the preemptor asks for more": grow,
    "the victim is a DaemonSet's": claim,
    "the victim's namespace is exempt": exempt,
}


async def test_a_pod_of_equal_priority_goes_for_a_queue_that_takes_back() -> None:
    world = world_with(asking(a_pod("b"), "root.b"))

    await world.ends(order_for("b"), "succeeded", deletes=["b"])


async def test_what_preempts_is_counted_once_a_look_and_not_for_each_victim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a thousand members and as many victims each judgement of all would take a minute."""
    looks = list[int]()

    def counted(pods: Iterable[Pod]) -> QueueClaim:
        looks.append(1)
        return claim_of(pods)

    monkeypatch.setattr(parties, "claim_of", counted)
    names = [f"b{number}" for number in range(8)]
    world = world_with(*(asking(a_pod(name), "root.b") for name in names))

    await world.ends(order_for(*names), "succeeded")

    assert 0 < len(looks) <= 2


@pytest.mark.parametrize("why", SPARED)
async def test_a_change_after_the_plan_spares_it_and_is_no_evidence_against_a_planner(why: str) -> None:
    world = world_with(asking(a_pod("a"), "root.b"), asking(a_pod("b"), "root.b"))
    SPARED[why](world)

    outcome = await world.ends(order_for("b"), "refused", "victim-spared", deletes=[])

    assert reasons(outcome) == {"b": RECLAIM}
    assert RECLAIM not in NEVER_VICTIMS


async def test_a_pod_of_higher_priority_never_goes() -> None:
    world = world_with(asking(a_pod("b"), "root.b"))
    raise_victim(world)

    outcome = await world.carry_out(order_for("b"))

    assert (outcome.result, reasons(outcome)) == ("refused", {"b": "lower-priority"})


async def test_a_change_between_two_deletes_spares_the_second() -> None:
    world = world_with(asking(a_pod("a"), "root.b"), asking(a_pod("b"), "root.b"))
    world.cluster.before("delete", "a", lambda: queues(enabled="false")(world))
    world.cluster.slow["get_pod", "b"] = 40

    outcome = await world.carry_out(order_for("a", "b"))

    assert "b" not in world.cluster.deletes()
    assert outcome.result != "succeeded"


def unit_world(other: str, own: int = 5) -> World:
    """A unit of pods a, in root.b, and b, in another queue and on another node. `own`: their priority."""
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": "1"}))
    pods = [
        msgspec.structs.replace(one, metadata=asking(a_pod(one.metadata.name), path).metadata)
        for one, path in ((member("a", priority=own), "root.b"), (member("b", "node-b", priority=own), other))
    ]
    world = world_of(*(changed(one, "spec", containers=(container,)) for one in pods))
    world.cluster.groups = {
        key: msgspec.structs.replace(one, priority=5) for key, one in world.cluster.groups.items() if one
    }
    world.cluster.put(asking(preemptor_pod(), "root.a"))
    queues()(world)
    return world


def order_for_unit() -> EvictionOrder:
    order = unit_order("a", "b", preemptor=make_preemptor(priority=5))
    victims = tuple(msgspec.structs.replace(one, rule=RECLAIM) for one in order.victims)
    return msgspec.structs.replace(order, victims=victims)


@pytest.mark.parametrize(
    ("other", "own", "goes"),
    [("root.b", 5, True), ("root.b", 4, True), ("root.b", 6, False), ("root.a", 5, False)],
)
async def test_a_unit_goes_whole_only_where_all_of_it_is_taken_back(other: str, own: int, goes: bool) -> None:
    """Not where a pod is more important than its group: the next one would take the room back."""
    world = unit_world(other, own)

    outcome = await world.carry_out(order_for_unit())

    assert (set(results(outcome).values()) == {"deleted"}) == goes
    assert bool(world.cluster.deletes()) == goes


async def test_what_is_left_of_a_unit_goes_though_nothing_is_taken_back_any_more() -> None:
    world = unit_world("root.b")
    world.cluster.before("delete", "a", lambda: queues(enabled="false")(world))
    world.cluster.slow["get_pod", "b"] = 40

    await world.ends(order_for_unit(), victims={"a": "deleted", "b": "deleted"})
