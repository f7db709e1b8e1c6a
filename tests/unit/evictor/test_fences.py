"""Orders may name the fences that are configured, and no others."""

import msgspec
import pytest

from makeway.bus.messages import Fence
from makeway.evictor.judge.fences import Fences
from unit.evictor.building import EPOCH, make_order
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World, running

SCHEDULERS = Fence(kind="lease", namespace="kube-system", name="makeway-scheduler", epoch=EPOCH)
PLANNERS = Fence(kind="lease", namespace="makeway-system", name="makeway-planner", epoch=EPOCH)


@pytest.mark.parametrize(
    "fence",
    [
        Fence(kind="kv", name="any", epoch=0),
        Fence(kind="kv", name="makeway-scheduler", epoch=0),
        Fence(kind="lease", namespace="default", name="of-a-tenant", epoch=2**62),
        PLANNERS,
    ],
)
async def test_an_order_that_names_a_fence_of_its_own_deletes_nothing(fence: Fence) -> None:
    world = World(*running("a"))

    await world.ends(make_order("a", fence=fence), "refused", "fence-unknown", deletes=[])

    assert ("get_lease", fence.name) not in world.cluster.calls


async def test_a_quota_order_is_fenced_by_the_planner_and_not_by_a_scheduler() -> None:
    world = World(*running("a"))
    order = quota_order("a")

    await world.ends(msgspec.structs.replace(order, fence=SCHEDULERS), "refused", "fence-unknown", deletes=[])


@pytest.mark.parametrize("epoch", [EPOCH + 1, 2**62])
async def test_an_order_of_an_epoch_that_has_not_begun_deletes_nothing(epoch: int) -> None:
    world = World(*running("a"))
    fence = Fence(kind="lease", namespace="kube-system", name="makeway-scheduler", epoch=epoch)

    await world.ends(make_order("a", fence=fence), "refused", "future-epoch", deletes=[])


async def test_a_counter_that_nats_has_lost_fences_no_order_out() -> None:
    world = World(*running("a"), fences=Fences.of(["kv/default-scheduler"]))

    await world.ends(make_order("a", fence=Fence(kind="kv", name="default-scheduler", epoch=7)), "succeeded")


def test_several_schedulers_may_have_fences() -> None:
    fences = Fences.of(["lease/kube-system/makeway-scheduler", "kv/batch"])

    assert not fences.refusal_of(make_order("a"))
    assert not fences.refusal_of(make_order("a", fence=Fence(kind="kv", name="batch", epoch=0)))
    assert fences.refusal_of(make_order("a", fence=Fence(kind="kv", name="other", epoch=0))) == (
        "the fence kv/other is none of kv/batch, lease/kube-system/makeway-scheduler"
    )


@pytest.mark.parametrize("written", ["", "makeway-scheduler", "lease/x", "kv/a/b", "lease//x", "file/a/b"])
def test_a_fence_that_is_written_otherwise_is_refused_at_the_start(written: str) -> None:
    with pytest.raises(ValueError, match="write lease/NAMESPACE/NAME"):
        Fences.of([written])


def test_an_evictor_without_a_fence_does_not_start() -> None:
    with pytest.raises(ValueError, match="--planner-fence is missing"):
        Fences.of(planners=[])
