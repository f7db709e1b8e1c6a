"""How far an evictor may go, and what that does to orders: refused, stopped on the way, rolled back."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from makeway.bus.control import ControlState, Limits
from makeway.bus.messages import MAY_PASS, NominationToClear
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.policy.mode import Mode
from makeway.evictor.act.cluster import Cluster
from makeway.evictor.limits.mode_guard import ModeGuard
from makeway.evictor.metrics import EvictorMetrics
from makeway.evictor.retry import TemporaryError
from makeway.runtime.kube import Api, ApiError
from unit.evictor.building import NODE, a_pod, make_order
from unit.evictor.fakes import SERVER_ERROR, UNAVAILABLE
from unit.evictor.test_quota_orders import quota_order
from unit.evictor.test_service import World, running

ORDER: list[Mode] = ["off", "observe", "enforce"]
modes: st.SearchStrategy[Mode] = st.sampled_from(ORDER)


def told(mode: Mode, **fields: object) -> ControlState:
    return ControlState(revision=1, mode=mode, cluster_uid="c", **fields)  # type: ignore[arg-type]


@given(own=modes, policy=modes, control=st.none() | modes, namespaced=st.none() | modes)
def test_the_most_restrictive_of_the_three_holds(
    own: Mode, policy: Mode, control: Mode | None, namespaced: Mode | None
) -> None:
    mode_guard = ModeGuard(own, lambda: Policy(mode=policy))
    if control is not None:
        mode_guard.put_control(told(control, namespace_modes={"a": namespaced} if namespaced else {}))

    said = "enforce" if control is None else namespaced or control
    assert mode_guard.mode("a") == min((own, policy, said), key=ORDER.index)


def test_the_lower_of_two_limits_holds() -> None:
    mode_guard = ModeGuard("enforce", lambda: Policy(limits=PolicyLimits(victims_per_order=3)))
    assert mode_guard.too_large(make_order("a", "b", "c")) is None

    mode_guard.put_control(told("enforce", limits=Limits(victims_per_order=2)))

    refused = mode_guard.too_large(make_order("a", "b", "c"))
    assert refused is not None
    assert (refused.reason, refused.message) == (
        "too-many-victims",
        "3 victims, the policy allows 2 in an order",
    )


async def test_an_order_with_more_victims_than_allowed_is_refused_before_anything_is_read() -> None:
    world = World(*running("a", "b"))
    world.policy = Policy(limits=PolicyLimits(victims_per_order=1))

    await world.ends(make_order("a", "b"), "refused", "too-many-victims")

    assert world.cluster.marks() == []
    assert world.nominated_node() is None


async def test_an_order_that_is_tried_again_stops_at_once_when_the_mode_changes() -> None:
    world = World(*running("a", "b"))
    world.cluster.fail("delete", "a", *[SERVER_ERROR] * 100)

    def off() -> None:
        world.mode_guard.put_control(told("off"))

    world.cluster.before("delete", "a", off)

    outcome = await world.ends(make_order("a", "b"), "refused", "mode-off")

    assert [victim.result for victim in outcome.victims] == ["notAttempted", "notAttempted"]
    assert world.cluster.calls.count(("delete", "a")) == 1
    assert ("clear_mark", "a") in world.cluster.calls
    assert ("delete", "b") not in world.cluster.calls
    assert world.nominated_node() is None


async def test_a_namespace_that_only_observes_keeps_its_preemptors_from_evicting() -> None:
    world = World(*running("a"))
    world.policy = Policy(namespace_modes={"default": "observe"})

    await world.ends(make_order("a"), "refused", "mode-observe", says="namespace default is observe")


async def test_no_nomination_is_cleared_any_more_once_the_mode_is_off() -> None:
    waiting = [a_pod(name).on(None).nominated(NODE).phase("Pending").build() for name in ("x", "y")]
    world = World(*running("a"), *waiting)
    world.cluster.before("get_pod", "x", lambda: world.mode_guard.put_control(told("off")))
    refs = tuple(NominationToClear(namespace="default", name=name, uid=f"{name}-uid") for name in ("x", "y"))

    outcome = await world.carry_out(make_order("a", nominations_to_clear=refs))

    assert (outcome.result, outcome.nominations_cleared) == ("succeeded", ())
    assert [world.cluster.pods[name].status.nominated_node_name for name in "xy"] == [NODE, NODE]


EVERYWHERE = Brake(everywhere=True, by="ops")


async def test_an_order_is_refused_while_the_brake_is_set_whatever_the_policy_says() -> None:
    world = World(*running("a"))
    world.cluster.brake = EVERYWHERE

    await world.ends(make_order("a"), "refused", "mode-off", says="the brake is set everywhere by ops")

    assert world.cluster.deletes() == world.cluster.marks() == []
    assert world.nominated_node() is None


async def test_a_brake_that_no_watch_has_told_of_stops_the_next_delete() -> None:
    world = World(*running("a", "b"))

    def pull() -> None:
        world.cluster.brake = EVERYWHERE

    world.cluster.before("delete", "a", pull)

    await world.ends(make_order("a", "b"), "refused", "mode-off", deletes=["a"])


async def test_each_delete_comes_after_a_read_of_the_brake_and_nothing_else() -> None:
    world = World(*running("a", "b", "c"))

    await world.carry_out(make_order("a", "b", "c"))

    acts = [call for call in world.cluster.calls if call[0] in ("read_brake", "delete")]
    assert [name for _, name in acts if name] == ["a", "b", "c"]
    for name in "abc":
        at = world.cluster.calls.index(("delete", name))
        before = [call for call in world.cluster.calls[:at] if call[0] in ("read_brake", "mark")]
        assert ("read_brake", "") in before[before.index(("mark", name)) :]


@pytest.mark.parametrize("status", [403, 404, 422, 500])
async def test_whatever_keeps_the_brake_from_being_read_may_pass(status: int) -> None:
    async def read() -> Brake:
        raise ApiError(status, "Forbidden", 'configmaps "makeway-brake" is forbidden')

    cluster = Cluster(cast("Api", None), EvictorMetrics(CollectorRegistry()), read)

    with pytest.raises(TemporaryError, match=r"the brake cannot be read: .*makeway-brake") as raised:
        await cluster.read_brake()
    assert raised.value.reason in MAY_PASS


async def test_a_brake_that_cannot_be_read_is_held_against_no_victim_of_a_quota_order() -> None:
    world = World(*running("a", "b"))
    world.cluster.always_fail("read_brake", "", UNAVAILABLE)

    outcome = await world.ends(quota_order("a", "b"), "expired")

    assert [victim.result for victim in outcome.victims] == ["notAttempted"] * 2
    assert world.cluster.deletes() == world.cluster.marks() == []


async def test_nothing_is_deleted_where_the_brake_cannot_be_read() -> None:
    world = World(*running("a"))
    world.cluster.always_fail("read_brake", "", UNAVAILABLE)

    outcome = await world.carry_out(make_order("a"))

    assert outcome.result in ("failed", "expired")
    assert world.cluster.deletes() == []
    assert world.nominated_node() is None


async def test_a_braked_namespace_keeps_its_preemptors_from_evicting_and_no_others() -> None:
    world = World(*running("a"))
    world.cluster.brake = Brake(namespaces=frozenset({"elsewhere"}))
    assert (await world.carry_out(make_order("a"))).result == "succeeded"

    world = World(*running("a"))
    world.cluster.brake = Brake(namespaces=frozenset({"default"}))
    assert (await world.carry_out(make_order("a"))).reason == "mode-off"
    assert world.mode_guard.modes() == ("enforce", {"default": "off"})


async def test_a_quota_order_stops_for_the_brake_as_well() -> None:
    world = World(*running("a", "b"))
    world.cluster.brake = EVERYWHERE
    order = quota_order("a", "b")

    await world.ends(order, "refused", "mode-off")

    assert world.cluster.deletes() == world.cluster.marks() == []
