"""What authors of pods may change between a plan and its eviction opens no breaker, whatever the change."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from makeway.bus.messages import EvictionOrder, Outcome
from makeway.core.k8s.objects import OwnerReference, Pod, SchedulingGroup
from makeway.core.k8s.pod_groups import GroupKey, GroupRecord
from makeway.core.policy import exemption
from makeway.core.queues.quota_exemption import EXEMPT_NAMESPACE
from makeway.core.queues.quota_order import NOT_IN_QUEUE, NOT_LIMITED
from makeway.evictor.limits.breaker import NEVER_VICTIMS, OPENS_AT, Breaker
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import PermanentError, TemporaryError
from unit.evictor.building import a_pod, changed, make_order, make_victim
from unit.evictor.fakes import VirtualClock
from unit.evictor.test_closed_domains import BLOCKER, closed_world
from unit.evictor.test_daemonset_victims import ON, OTHER_LABELS, bound, logs
from unit.evictor.test_group_orders import TRAIN, VICTIMS, GroupWorld, group_order
from unit.evictor.test_groups import KEY, UNIT, member, record, unit_order, world_of
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World

CRITICAL: Final = 2_000_000_000
PARENT: Final = GroupKey("default", "parent", composite=True)

OF_AUTHORS: Final = frozenset(
    {
        *exemption.RULES,
        "not-bound",
        "pod-group",
        "daemonset-not-proven",
        "daemonset-pod",
        "daemonset-other-namespace",
        "closes-nothing",
        NOT_IN_QUEUE,
        NOT_LIMITED,
        EXEMPT_NAMESPACE,
    }
)
"""Reasons to spare a victim that its author, or its preemptor's, may bring about, or an administrator."""

Case = tuple[World, EvictionOrder]
Change = Callable[[World], None]


def opens(outcome: Outcome) -> bool:
    """Report whether orders that end so open the breaker for all."""
    breaker = Breaker(VirtualClock(), EvictorMetrics(CollectorRegistry()))
    for _ in range(OPENS_AT["mismatches"]):
        breaker.ended(outcome)
    return bool(breaker.everywhere())


# ------------------------------------------------------------------- orders that a planner writes


def lower() -> Case:
    return World(a_pod("a").build(), a_pod("b").build()), make_order("a", "b")


def daemonset() -> Case:
    """The preemptor is bound to its node by a DaemonSet, so that a pod of equal priority goes."""
    world = World(a_pod("a").priority(1000).build())
    world.cluster.put(bound())
    world.cluster.daemonsets["default", "logs"] = logs(bound())
    world.policy = ON
    return world, make_order(make_victim("a", priority=1000, rule="daemonset-single"))


def below_its_group() -> Case:
    """A pod of a priority above the preemptor's, whose group's is lower."""
    world = world_of(member("a", priority=5000), group=record(whole=False))
    return world, make_order(make_victim("a", rule="lower-group-priority"))


def unit() -> Case:
    return world_of(member("a", priority=5000), member("b", "node-b")), unit_order("a", "b")


def gang() -> Case:
    """The group that preempts has its priority from the group above it."""
    world = GroupWorld()
    world.cluster.groups[TRAIN] = replace(world.cluster.groups[TRAIN], priority=1, parent="parent")
    world.cluster.groups[PARENT] = GroupRecord(key=PARENT, uid="parent-uid", priority=1000)
    return world, group_order(*VICTIMS)


def gang_of_a_closed_rack() -> Case:
    """A victim that goes since it keeps the rack of a member closed."""
    return closed_world(), group_order(*VICTIMS, BLOCKER)


def quota() -> Case:
    return World(a_pod("a").build(), a_pod("b").on("node-b").build()), quota_order("a", "b")


def quota_of_a_unit() -> Case:
    world = world_of(member("a"), member("b", "node-b"))
    return world, quota_order(make_victim("a", unit=UNIT), make_victim("b", node="node-b", unit=UNIT))


CASES: Final[Sequence[Callable[[], Case]]] = (
    lower,
    daemonset,
    below_its_group,
    unit,
    gang,
    gang_of_a_closed_rack,
    quota,
    quota_of_a_unit,
)


# ------------------------------------------------------------------- what an author may change


def each(part: str, *names: str, **fields: Any) -> Change:
    """Change a part of pods: the victims and the preemptor, unless named."""

    def change(world: World) -> None:
        for name in names or tuple(world.cluster.pods):
            if name in world.cluster.pods:
                world.cluster.put(changed(world.cluster.pods[name], part, **fields))

    return change


def anew(name: str, build: Callable[[], Pod]) -> Change:
    return lambda world: world.cluster.put(build())


def group(key: GroupKey, **fields: Any) -> Change:
    """Make a group anew that was there, or one that was not."""

    def change(world: World) -> None:
        before = world.cluster.groups.get(key) or GroupRecord(key=key, uid="new-uid")
        world.cluster.groups[key] = replace(before, **fields)

    return change


def without_group(key: GroupKey) -> Change:
    def change(world: World) -> None:
        world.cluster.groups.pop(key, None)

    return change


def without_pod(name: str) -> Change:
    def change(world: World) -> None:
        world.cluster.pods.pop(name, None)

    return change


def daemonset_as(**fields: Any) -> Change:
    def change(world: World) -> None:
        world.cluster.daemonsets["default", "logs"] = logs(bound(), **fields)

    return change


def refuse(operation: str, error: Exception) -> Change:
    """A budget, a webhook or a finalizer that the author has."""

    def change(world: World) -> None:
        for name in ("a", "b", "c"):
            world.cluster.always_fail(operation, name, error)

    return change


FORGED: Final = OwnerReference(
    api_version="apps/v1", kind="DaemonSet", name="logs", uid="logs-uid", controller=True
)

CHANGES: Final[dict[str, Change]] = {
    "labels": each("metadata", labels={"app": "y", "queue": "root.nolimit"}),
    "annotated never to be evicted": each(
        "metadata",
        annotations={"makeway.dev/never-evict": "true", "yunikorn.apache.org/allow-preemption": "false"},
    ),
    "mirror": each("metadata", "a", annotations={"kubernetes.io/config.mirror": "x"}),
    "no owner": each("metadata", owner_references=()),
    "a DaemonSet as owner": each("metadata", owner_references=(FORGED,)),
    "victims of a DaemonSet": each("metadata", "a", owner_references=(FORGED,)),
    "DaemonSet gone": lambda world: world.cluster.daemonsets.clear(),
    "DaemonSet anew": daemonset_as(uid="another"),
    "DaemonSet of other pods": daemonset_as(selector=OTHER_LABELS),
    "DaemonSet there": daemonset_as(),
    "group gone": without_group(KEY),
    "group higher": group(KEY, priority=5000),
    "group critical": group(KEY, priority=CRITICAL + 1),
    "group whole": group(KEY, whole=True),
    "group not whole": group(KEY, whole=False),
    "group of a parent": group(KEY, parent="parent"),
    "parent gone": without_group(PARENT),
    "parent lower": group(PARENT, priority=-10),
    "parent critical": group(PARENT, priority=CRITICAL + 1),
    "gang without a parent": group(TRAIN, parent=""),
    "blocker deleted": without_pod("d"),
    "blocker anew elsewhere": anew("d", lambda: a_pod("d").uid("another").on("node-z").build()),
    "gang of another size": group(TRAIN, min_count=1),
    "gang anew": group(TRAIN, uid="another"),
    "late member": lambda world: world.cluster.put(member("late", "node-late", priority=9000)),
    "deleted": lambda world: world.cluster.remove("a"),
    "terminating": lambda world: world.cluster.leave("a") if "a" in world.cluster.pods else None,
    "finalizer": each("metadata", finalizers=("x",)),
    "ended": each("status", "a", phase="Failed"),
    "preemptor deleted": lambda world: world.cluster.remove("urgent"),
    "anew elsewhere at a high priority": anew(
        "a", lambda: a_pod("a").uid("another").on("node-z").priority(CRITICAL).build()
    ),
    "anew in the group that preempts": anew(
        "a",
        lambda: changed(
            a_pod("a").uid("another").build(),
            "spec",
            scheduling_group=SchedulingGroup(pod_group_name="train"),
        ),
    ),
    "budget": refuse("delete", TemporaryError("throttled", "429: the budget allows none")),
    "webhook": refuse("delete", PermanentError("Forbidden", "403 Forbidden: no")),
    "webhook of the dry run": refuse("dry_run", PermanentError("Forbidden", "403 Forbidden: no")),
}


@pytest.mark.parametrize("case", CASES)
async def test_an_order_by_a_planner_is_carried_out_where_nothing_changed(case: Callable[[], Case]) -> None:
    world, order = case()

    assert (await world.carry_out(order)).result == "succeeded"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_no_change_by_an_author_opens_the_breaker(case: Callable[[], Case], change: Change) -> None:
    world, order = case()
    change(world)

    outcome = await world.carry_out(order)

    assert not opens(outcome), outcome
    assert {one.reason for one in outcome.victims if one.result == "spared"} <= OF_AUTHORS


@given(
    case=st.sampled_from(CASES),
    names=st.lists(st.sampled_from(sorted(CHANGES)), min_size=2, max_size=5, unique=True),
)
async def test_no_changes_together_open_the_breaker(case: Callable[[], Case], names: list[str]) -> None:
    world, order = case()
    for name in names:
        if name not in ("deleted", "preemptor deleted") or {"a", "urgent"} <= set(world.cluster.pods):
            CHANGES[name](world)

    outcome = await world.carry_out(order)

    assert not opens(outcome), outcome


# --------------------------------------------------------- what neither planner nor plugin writes


def forged_daemonset(priority: int) -> Case:
    world, order = daemonset()
    world.cluster.put(a_pod("a").priority(priority).build())
    return world, order


FORGERIES: Final[dict[str, tuple[Callable[[], Case], str]]] = {
    "equal": (lambda: (World(a_pod("a").priority(1000).build()), make_order("a")), "lower-priority"),
    "higher": (
        lambda: (
            World(a_pod("a").priority(1001).build()),
            make_order(make_victim("a", rule="daemonset-single")),
        ),
        "lower-priority",
    ),
    "higher for a DaemonSet": (lambda: forged_daemonset(1001), "higher-priority"),
    "critical": (lambda: (World(a_pod("a").priority(CRITICAL).build()), quota_order("a")), "system-critical"),
    "another node": (lambda: (World(a_pod("a").on("node-z").build()), make_order("a")), "on-another-node"),
    "itself": (lambda: (World(), make_order(make_victim("urgent", uid="urgent-uid"))), "is-preemptor"),
}


@pytest.mark.parametrize(("case", "reason"), FORGERIES.values(), ids=FORGERIES)
async def test_orders_that_no_planner_writes_open_the_breaker(case: Callable[[], Case], reason: str) -> None:
    world, order = case()

    outcome = await world.carry_out(order)

    assert opens(outcome)
    assert reason in {one.reason for one in outcome.victims}


def test_each_reason_that_counts_is_tried_and_is_of_no_author() -> None:
    assert {reason for _, reason in FORGERIES.values()} == NEVER_VICTIMS
    assert not NEVER_VICTIMS & OF_AUTHORS
