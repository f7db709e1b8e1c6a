"""Which pods would go for a quota that is lowered, on a dump."""

from makeway.core.policy.document import Policy, PolicyLimits
from makeway.core.queues.parsing import parse_queues
from makeway.core.queues.tree import QueueTree
from makeway.planner.offline.quotas import lowered, not_enforced
from makeway.planner.offline.results import SimulatedQuota
from makeway.planner.offline.world import World
from unit.planner.offline_building import NOW, node, pod, world


def queues(research: int, training: int, *, delay: str = "60", enabled: bool = True) -> QueueTree:
    """Research with training and notebooks below it."""
    text = f"""
partitions:
- preemption: {{quotapreemptionenabled: {str(enabled).lower()}}}
  queues:
  - name: research
    resources: {{max: {{vcore: {research}}}, quota.preemption.delay: {delay}}}
    queues:
    - name: training
      resources: {{max: {{vcore: {training}}}, quota.preemption.delay: {delay}}}
    - name: notebooks
      resources: {{guaranteed: {{vcore: 1}}}}
"""
    return parse_queues(text, "queues.yaml").tree


def cluster() -> World:
    """Four cores in training and two in notebooks."""
    pods = [
        pod(f"{leaf[0]}{n}", "a", labels={"queue": f"root.research.{leaf}"}, priority=n)
        for leaf, count in (("training", 4), ("notebooks", 2))
        for n in range(count)
    ]
    return world(node("a", "16"), *pods)


def simulated(
    before: QueueTree | None, after: QueueTree, policy: Policy | None = None
) -> list[SimulatedQuota]:
    there = cluster()
    if policy is not None:
        there.enforce(policy, "policy")
    there.adopt(after, "queues")
    return list(lowered(there.snapshot, before, NOW))


def who(quota: SimulatedQuota) -> list[tuple[str, str]]:
    return [(one.name, one.queue.rpartition(".")[2]) for one in quota.victims]


def test_a_lowered_quota_lists_its_victims_in_their_queues_and_their_order() -> None:
    (quota,) = simulated(queues(9, 9), queues(3, 9))

    assert (quota.queue, quota.after_seconds, quota.mode) == ("root.research", 60, "enforce")
    assert who(quota) == [("n0", "notebooks"), ("t0", "training"), ("t1", "training")]
    assert (quota.quota.result, quota.quota.need) == ("success", {"cpu": 3000})
    assert "root.research uses cpu 6 of at most cpu 3" in quota.message


def test_a_queue_and_one_above_it_come_one_after_the_other() -> None:
    below, above = simulated(queues(9, 9), queues(4, 3))

    assert (below.queue, who(below)) == ("root.research.training", [("t0", "training")])
    assert (above.queue, above.quota.need) == ("root.research", {"cpu": 1000})
    assert len(above.victims) == 1
    assert above.victims[0].name != "t0"


def test_what_is_not_lowered_takes_no_pod() -> None:
    assert simulated(queues(3, 3), queues(3, 3)) == []
    assert simulated(queues(3, 3), queues(4, 5)) == []


def test_where_no_queues_were_in_force_every_maximum_is_new() -> None:
    assert [quota.queue for quota in simulated(None, queues(4, 3))] == [
        "root.research.training",
        "root.research",
    ]


def test_in_another_mode_it_is_still_told_which_pods_would_go() -> None:
    (quota,) = simulated(queues(9, 9), queues(3, 9), Policy(mode="off"))

    assert quota.mode == "off"
    assert len(quota.victims) == 3


def test_a_maximum_that_is_lowered_without_effect_is_told() -> None:
    before = queues(9, 9)

    (told,) = not_enforced(before, queues(3, 9, delay="0"))
    assert "max of root.research is lowered" in told
    assert "no quota.preemption.delay" in told
    (told,) = not_enforced(before, queues(3, 9, enabled=False))
    assert "quotapreemptionenabled" in told
    assert list(not_enforced(before, queues(3, 9))) == []
    assert simulated(before, queues(3, 9, delay="0")) == []


def test_how_long_the_caps_make_a_quota_take_is_told_with_it() -> None:
    slow = Policy(limits=PolicyLimits(victims_per_minute=1))

    (quota,) = simulated(queues(9, 9), queues(3, 9), slow)

    assert any(
        "at most 1 go for one queue at once, so that 3 pods take at least 2 minutes" in n for n in quota.notes
    )
    (quick,) = simulated(queues(9, 9), queues(3, 9))
    assert [note for note in quick.notes if "caps" in note] == []


def test_a_simulation_says_that_it_does_not_know_whose_pods_the_queue_gate_holds() -> None:
    (quota,) = simulated(queues(9, 9), queues(3, 9))

    assert any(
        note.startswith("only pods of scheduler profiles with the queue gate go") for note in quota.notes
    )
