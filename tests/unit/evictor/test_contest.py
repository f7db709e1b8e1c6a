"""Victims that are written all the time: by whatever path they go, and what is still looked at first."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from makeway.core.k8s.objects import Pod
from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.facts import PodFacts
from makeway.evictor.judge.contest import CHANGING, SAME, Contest, basis_of
from unit.evictor.building import NOW, a_pod, changed, make_order, make_victim
from unit.evictor.test_group_orders import GroupWorld, group_order, on
from unit.evictor.test_hard_budgets import hard
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World, running

WRITES = ("mark", "dry_run", "delete", "evict")


class Written:
    """A cluster in which someone writes to a victim before whatever is written to it."""

    def __init__(self, world: World, name: str, write: Callable[[Pod, int], Pod] | None = None) -> None:
        self.world, self.name, self.written = world, name, 0
        self._write = write or (lambda pod, _: pod)
        called = world.cluster._called

        async def call(operation: str, target: str) -> None:
            await called(operation, target)
            if operation in WRITES and target == name and name in world.cluster.pods:
                self.written += 1
                pod = world.cluster.changed(name)
                world.cluster.put(self._write(pod, self.written))

        world.cluster._called = call  # type: ignore[assignment, method-assign]


def test_the_uid_is_enough_after_two_conflicts_with_a_pod_that_is_judged_the_same() -> None:
    pod = a_pod("a").build()
    same = basis_of(pod, PodFacts(), None)
    contest = Contest()
    for _ in range(SAME):
        contest = contest.judged_by(same)
        assert not contest.by_uid
        contest = contest.after_conflict()
    assert contest.judged_by(same).by_uid


@pytest.mark.parametrize(
    "other",
    [{"uid": "b"}, {"node": "n2"}, {"phase": "Pending"}, {"facts": PodFacts(queue="b")}],
    ids=lambda one: next(iter(one)),
)
def test_a_pod_that_is_judged_by_other_facts_is_looked_at_by_its_version_again(other: dict[str, str]) -> None:
    first = basis_of(a_pod("a").build(), PodFacts(), None)
    contest = Contest().judged_by(first).after_conflict().after_conflict()

    assert contest.judged_by(first).by_uid
    assert not contest.judged_by(replace(first, **other)).by_uid  # type: ignore[arg-type]


def test_facts_that_change_each_time_keep_the_version_for_five_conflicts_only() -> None:
    contest = Contest()
    for number in range(CHANGING):
        contest = contest.judged_by(basis_of(a_pod("a").build(), PodFacts(queue=str(number)), None))
        assert not contest.by_uid
        contest = contest.after_conflict()
    assert contest.by_uid


async def test_a_victim_that_is_written_before_each_write_goes_within_seconds() -> None:
    world = World(*running("a"))
    written = Written(world, "a")

    await world.ends(make_order("a"), "succeeded", victims={"a": "deleted"})

    assert (world.clock.now() - NOW).total_seconds() < 2
    assert written.written == SAME + 2  # two conflicts, then mark and delete
    assert world.metric("makeway_evictor_retries_total", operation="evict", reason="conflict") == SAME


async def test_a_victim_whose_queue_is_written_anew_each_time_goes_as_well() -> None:
    world = World(*running("a"))

    def relabel(pod: Pod, number: int) -> Pod:
        return changed(pod, "metadata", labels={"queue": f"root.{number}"})

    Written(world, "a", relabel)

    await world.ends(make_order("a"), "succeeded")

    assert world.metric("makeway_evictor_retries_total", operation="evict", reason="conflict") == CHANGING


async def test_a_victim_with_a_hard_budget_is_evicted_by_its_uid_as_well() -> None:
    world = hard(World(*running("a")))
    Written(world, "a")

    await world.ends(make_order("a"), "succeeded", deletes=[])

    assert world.cluster.evictions()


async def test_a_victim_of_a_quota_goes_as_well() -> None:
    world = World(*running("a"))
    Written(world, "a")

    assert (await world.carry_out(quota_order("a"))).result == "succeeded"


async def test_a_victim_of_a_groups_order_goes_as_well_though_its_deletion_is_tried_first() -> None:
    world = GroupWorld()
    Written(world, "a")

    assert (await world.carry_out(group_order(on("a", "n1")))).result == "succeeded"


async def test_a_pod_that_is_protected_between_two_conflicts_stays() -> None:
    world = World(*running("a"))
    world.policy = Policy(protection=Protection(never_evict_namespaces=("default",)))

    def protect(pod: Pod, number: int) -> Pod:
        asked = {"makeway.dev/never-evict": "true"} if number == SAME else {}
        return changed(pod, "metadata", annotations=asked)

    Written(world, "a", protect)

    await world.ends(make_order("a"), "refused", "victim-spared")

    assert world.cluster.pods["a"].metadata.deletion_timestamp is None


async def test_another_pod_of_the_name_is_not_deleted_however_many_conflicts_came_before() -> None:
    world = World(*running("a"))

    def recreate(pod: Pod, number: int) -> Pod:
        return pod if number <= SAME else changed(pod, "metadata", uid="another")

    Written(world, "a", recreate)

    await world.ends(make_order(make_victim("a")), victims={"a": "gone"})

    assert world.cluster.pods["a"].metadata.deletion_timestamp is None
