"""The re-check asks the planner's rules, of the pod, the class and the policy as they are now."""

from makeway.bus.messages import Outcome
from makeway.core.k8s.objects import Metadata, Pod, PriorityClass
from makeway.core.policy.document import Policy, Protection
from makeway.core.policy.toleration import MINIMUM_PREEMPTABLE_PRIORITY, TOLERATION_SECONDS
from makeway.core.policy.toleration_record import UNREAD_RECORD, TolerationRecord
from unit.evictor.building import a_pod, make_order
from unit.evictor.fakes import UNAVAILABLE
from unit.evictor.test_service import World


def steady(seconds: str | None = None) -> PriorityClass:
    annotations = {MINIMUM_PREEMPTABLE_PRIORITY: "5000", TOLERATION_SECONDS: seconds} if seconds else {}
    return PriorityClass(metadata=Metadata(name="steady", annotations=annotations))


def of_class(*names: str) -> tuple[Pod, ...]:
    return tuple(a_pod(name).of_class("steady").build() for name in names)


def reasons(outcome: Outcome) -> dict[str, str]:
    return {victim.name: victim.reason for victim in outcome.victims}


async def test_a_toleration_that_came_after_the_order_saves_the_pod_and_says_so() -> None:
    world = World(*of_class("a", "b"))
    world.cluster.classes["steady"] = steady("-1")

    outcome = await world.ends(
        make_order("a", "b"),
        "refused",
        "victim-spared",
        says="preemption-toleration: 1000 < minimum-preemptable-priority 5000",
    )

    assert reasons(outcome)["a"] == "preemption-toleration"
    assert world.cluster.deletes() == world.cluster.marks() == []
    assert world.nominated_node() is None


async def test_a_toleration_that_comes_between_two_deletes_saves_the_last_pod() -> None:
    world = World(*of_class("a", "b"))
    world.cluster.classes["steady"] = steady()
    world.cluster.before("delete", "a", lambda: world.cluster.classes.__setitem__("steady", steady("-1")))

    await world.ends(make_order("a", "b"), "refused", deletes=["a"], victims={"a": "deleted", "b": "spared"})


async def test_a_class_that_is_gone_saves_its_pods_where_it_is_on_record() -> None:
    world = World(*of_class("a"))
    world.cluster.tolerations = TolerationRecord({"steady": steady("-1")})

    outcome = await world.carry_out(make_order("a"))

    assert reasons(outcome) == {"a": "preemption-toleration"}
    assert "PriorityClass steady is gone, makeway-tolerations has it" in outcome.message


async def test_a_class_that_is_gone_saves_its_pods_where_the_record_was_never_read() -> None:
    world = World(*of_class("a"))
    world.cluster.tolerations = UNREAD_RECORD

    assert reasons(await world.carry_out(make_order("a"))) == {"a": "preemption-toleration"}


async def test_the_record_is_read_where_a_class_is_gone_and_again_after_a_failure() -> None:
    world, other = World(*of_class("a")), World(*of_class("b"))
    world.cluster.classes["steady"] = steady()
    other.cluster.fail("read_tolerations", "", UNAVAILABLE)

    assert (await world.carry_out(make_order("a"))).result == "succeeded"
    assert (await other.carry_out(make_order("b"))).result == "succeeded"
    assert ("read_tolerations", "") not in world.cluster.calls


async def test_a_class_is_read_once_for_all_its_pods() -> None:
    world = World(*of_class("a", "b", "c"))
    world.cluster.classes["steady"] = steady()

    await world.carry_out(make_order("a", "b", "c"))

    first_mark = world.cluster.calls.index(("mark", "a"))
    assert world.cluster.calls[:first_mark].count(("get_priority_class", "steady")) == 1


async def test_a_class_that_cannot_be_read_for_now_is_read_again() -> None:
    world = World(*of_class("a"))
    world.cluster.classes["steady"] = steady()
    world.cluster.fail("get_priority_class", "steady", UNAVAILABLE)

    assert (await world.carry_out(make_order("a"))).result == "succeeded"


async def test_a_pod_that_the_policy_protects_by_now_is_spared() -> None:
    world = World(a_pod("a").build())
    world.policy = Policy(protection=Protection(namespaces=("default",)))

    outcome = await world.carry_out(make_order("a"))

    assert reasons(outcome) == {"a": "protected-namespace"}
    assert world.cluster.deletes() == []
