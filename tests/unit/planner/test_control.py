"""What a leading planner says to plugin and evictors, and when it says it again."""

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from makeway.bus import codec
from makeway.bus.control import ControlState, Limits, QueueLimit, SettledQuota, Unplanned
from makeway.bus.errors import BusUnavailable
from makeway.bus.nats.publishing import AlreadyExists, Published
from makeway.core.policy.brake import Brake, braked
from makeway.core.policy.document import Groups, Policy, PolicyLimits, Protection, QueueRules, WhenUnplanned
from makeway.core.policy.mode import Mode
from makeway.core.queues.parsing import parse_queues
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.quota.processes import QuotaMemory
from makeway.planner.service.configuration import control
from makeway.planner.service.configuration.control import (
    MOST_NOTE,
    Control,
    lease_note,
    next_revision,
    remembering,
    state_of,
    within_bounds,
)
from makeway.planner.service.configuration.reader import queue_limits

NOW = datetime(2026, 1, 31, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
STATE = ControlState(revision=0, mode="observe", cluster_uid="c")


class Bus:
    """A stream with one message a subject."""

    def __init__(self, stored: ControlState | None = None, sequence: int = 0) -> None:
        self.stored, self.sequence = stored, sequence
        self.said: list[ControlState] = []
        self.away = 0
        self.rival: ControlState | None = None

    async def control(self) -> tuple[ControlState | None, int]:
        if self.away:
            self.away -= 1
            raise BusUnavailable("away")
        return self.stored, self.sequence

    async def publish_control(
        self, state: ControlState, expected_last_sequence: int, at: datetime
    ) -> Published | AlreadyExists:
        if self.rival is not None:
            self.stored, self.rival = self.rival, None
            self.sequence += 1
        if expected_last_sequence != self.sequence:
            return AlreadyExists(None)
        self.stored, self.sequence = state, self.sequence + 1
        self.said.append(state)
        return Published(self.sequence)


LOOKS = 8
"""So often it looks at each state before the next: more often than any of these buses refuses it."""


async def speaking(
    bus: Bus,
    states: list[ControlState | None],
    monkeypatch: pytest.MonkeyPatch,
    *,
    memory: QuotaMemory | None = None,
) -> CollectorRegistry:
    """Let a planner speak while the state that should be in force takes these values; return its metrics."""
    registry = CollectorRegistry()
    monkeypatch.setattr(control, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(control, "RETRY_SECONDS", 0.001)
    current, looks, looked = states[0], 0, asyncio.Event()

    def look() -> ControlState | None:
        nonlocal looks
        looks += 1
        if looks == LOOKS:
            looked.set()
        return current

    speaker = Control(bus, "c", look, PlannerMetrics(registry), lambda: memory)
    task = asyncio.create_task(speaker.publish_forever())
    for state in states:
        current, looks = state, 0
        looked.clear()
        speaker.changed()
        await looked.wait()
    task.cancel()
    await asyncio.wait({task})
    return registry


async def test_each_change_is_said_once_with_a_higher_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()

    await speaking(bus, [STATE, STATE, replace(STATE, mode="off"), STATE], monkeypatch)

    assert [state.mode for state in bus.said] == ["observe", "off", "observe"]
    revisions = [state.revision for state in bus.said]
    assert revisions == sorted(set(revisions))


SETTLED = (SettledQuota(path="root.a", max={"cpu": 1}, delay_microseconds=1, mode="enforce"),)


async def test_what_is_known_of_quotas_stays_until_a_leader_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus(replace(STATE, mode="off", settled=SETTLED, revision=3), sequence=1)

    await speaking(bus, [STATE], monkeypatch, memory=None)
    await speaking(bus, [STATE], monkeypatch, memory=QuotaMemory())

    assert [state.settled for state in bus.said] == [SETTLED, ()]


async def test_the_memory_of_another_cluster_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus(replace(STATE, cluster_uid="other", settled=SETTLED), sequence=1)

    await speaking(bus, [STATE], monkeypatch, memory=None)

    assert [state.settled for state in bus.said] == [()]


def test_a_memory_that_nats_cannot_carry_is_left_out_and_nothing_else() -> None:
    path = "root." + "a" * 500
    many = tuple(
        SettledQuota(path=f"{path}{n}", max={}, delay_microseconds=1, mode="enforce") for n in range(3000)
    )

    assert remembering(STATE, QuotaMemory(many)) == STATE
    assert remembering(STATE, QuotaMemory(SETTLED)).settled == SETTLED


async def test_a_new_leader_says_nothing_where_what_stands_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus(replace(STATE, revision=7), sequence=3)

    await speaking(bus, [STATE], monkeypatch)

    assert bus.said == []


async def test_nothing_is_said_while_it_is_not_known_what_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus(replace(STATE, mode="off"), sequence=1)

    await speaking(bus, [None], monkeypatch)

    assert bus.said == []


async def test_what_was_lost_or_spoilt_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for stored in (None, replace(STATE, cluster_uid="other", revision=2**62), replace(STATE, mode="enforce")):
        bus = Bus(stored, sequence=9)

        await speaking(bus, [STATE], monkeypatch)

        assert [replace(state, revision=0) for state in bus.said] == [STATE]


async def test_a_rival_is_noticed_and_its_revision_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    ahead = int(datetime.now(UTC).timestamp() * 1000) + 1_800_000
    bus.rival = replace(STATE, mode="off", revision=ahead)

    await speaking(bus, [STATE], monkeypatch)

    assert [state.revision for state in bus.said] == [ahead + 1]


async def test_a_bus_that_was_away_is_told_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    bus.away = 3

    await speaking(bus, [STATE], monkeypatch)

    assert len(bus.said) == 1


def test_a_revision_is_above_all_that_came_before_also_where_the_stream_was_lost() -> None:
    assert next_revision(None, "c", 0, NOW) == NOW_MS
    assert next_revision(replace(STATE, revision=NOW_MS + 5), "c", 0, NOW) == NOW_MS + 6
    assert next_revision(None, "c", NOW_MS + 8, NOW) == NOW_MS + 9
    assert next_revision(replace(STATE, cluster_uid="x", revision=2**62), "c", 0, NOW) == NOW_MS


@pytest.mark.parametrize("revision", [2**63 - 1, 2**63 - 2, NOW_MS + 3_600_001])
def test_a_revision_that_no_planner_can_have_given_does_not_count(revision: int) -> None:
    assert next_revision(replace(STATE, revision=revision), "c", 0, NOW) == NOW_MS
    assert next_revision(None, "c", revision, NOW) == NOW_MS


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_a_state_no_follower_takes_is_replaced(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it says what should be in force."""
    bus = Bus(replace(STATE, mode=mode, revision=2**63 - 1), sequence=7)

    await speaking(bus, [STATE], monkeypatch)

    assert [state.mode for state in bus.said] == ["observe"]
    assert not codec.is_ahead(bus.said[0].revision, datetime.now(UTC))


modes: st.SearchStrategy[Mode] = st.sampled_from(["off", "observe", "enforce"])


@given(own=modes, mode=modes, namespaces=st.dictionaries(st.sampled_from(["a", "b"]), modes))
def test_no_namespace_gets_more_than_both_allow(own: Mode, mode: Mode, namespaces: dict[str, Mode]) -> None:
    order = ["off", "observe", "enforce"]
    policy = Policy(mode=mode, namespace_modes=namespaces)

    state = state_of(policy, "r", mode=own, cluster_uid="c")

    for namespace in ("a", "b", "other"):
        told = state.namespace_modes.get(namespace, state.mode)
        assert order.index(told) == min(order.index(own), order.index(policy.mode_for(namespace)))


def test_off_is_off_for_namespaces_with_a_mode_of_their_own_too() -> None:
    policy = Policy(mode="off", namespace_modes={"a": "enforce"})

    assert policy.mode_for("a") == "off"
    assert state_of(policy, "", mode="enforce", cluster_uid="c").namespace_modes == {}


def test_limits_are_told_and_there_is_always_one_for_victims() -> None:
    with_limits = Policy(limits=PolicyLimits(victims_per_order=3))

    assert state_of(with_limits, "", mode="enforce", cluster_uid="c").limits == Limits(victims_per_order=3)
    assert state_of(Policy(), "", mode="enforce", cluster_uid="c").limits == Limits(victims_per_order=100)


def test_exempt_namespaces_are_told_with_makeways_own() -> None:
    policy = Policy(queues=QueueRules(exempt_namespaces=("cni", "kube-system")))

    state = state_of(policy, "", mode="enforce", cluster_uid="c", own_namespace="makeway-system")

    assert state.exempt_namespaces == ("cni", "kube-system", "makeway-system")


def test_queues_are_told_parents_first_with_their_limits_in_whole_units() -> None:
    queues = parse_queues(
        """
partitions:
- name: default
  queues:
  - name: root
    queues:
    - name: a
      namespaces: [team-b, team-a]
      resources: {max: {vcore: 2, memory: 1Gi}, guaranteed: {vcore: 1}}
""",
        "queues.yaml",
    )

    limits = {limit.path: limit for limit in queue_limits(queues)}

    assert next(iter(limits)) == "root"
    assert limits["root.a"].max == {"cpu": 2000, "memory": 1 << 30}
    assert limits["root.a"].guaranteed == {"cpu": 1000}
    assert limits["root.a"].namespaces == ("team-a", "team-b")
    assert queue_limits(None) == ()


def test_what_restricts_preemption_is_told_with_policy_queues_and_classes() -> None:
    policy = Policy(protection=Protection(namespaces=("a",)))

    limited = ("q", (QueueLimit(path="root"), QueueLimit(path="root.a", max={"cpu": 1})))
    told = state_of(
        policy, "r", mode="enforce", cluster_uid="c", queues=limited, tolerating=["sticky", "calm"]
    )

    assert told.unplanned == Unplanned(
        protecting=("protection.namespaces",), restricting=("queues", "PriorityClass calm")
    )
    unlimited = ("q", (QueueLimit(path="root"),))
    told = state_of(
        Policy(), "", mode="enforce", cluster_uid="c", queues=unlimited, tolerations_revision="17"
    )
    assert (told.unplanned, told.tolerations_revision) == (Unplanned(), "17")


def test_what_the_policy_says_of_pods_without_a_plan_is_told() -> None:
    policy = Policy(
        when_unplanned=WhenUnplanned(default="fallback", system="hold"), groups=Groups(preemptors="hold")
    )

    told = state_of(policy, "r", mode="enforce", cluster_uid="c")

    assert told.unplanned == Unplanned(default="fallback", system="hold")
    assert told.group_preemptors == "hold"


def test_the_lease_says_what_becomes_of_a_pod_without_a_plan_and_no_more() -> None:
    policy = Policy(namespace_modes={"a": "observe"}, limits=PolicyLimits(victims_per_order=3))
    queues = ("q", (QueueLimit(path="root", guaranteed={"cpu": 1}),))
    state = state_of(policy, "r", mode="enforce", cluster_uid="c", queues=queues, own_namespace="m")

    note = msgspec.json.decode(lease_note(state), type=ControlState)

    assert note == replace(state, limits=None, queues=(), exempt_namespaces=())
    assert note.unplanned == Unplanned(restricting=("limits", "queues"))


def test_a_lease_that_cannot_say_it_all_says_nothing() -> None:
    modes: dict[str, Mode] = {f"namespace-{n:06}": "observe" for n in range(4000)}
    state = state_of(Policy(namespace_modes=modes), "r", mode="enforce", cluster_uid="c")

    assert len(codec.encode(state)) > MOST_NOTE
    assert not lease_note(state)


def test_a_list_of_hard_budgets_that_nats_cannot_carry_is_left_to_the_policy() -> None:
    many = tuple(f"a-namespace-with-a-long-name-{n:08}" for n in range(30_000))
    policy = Policy(disruption_budgets="hard", hard_budget_namespaces=many)
    state = state_of(policy, "r", mode="enforce", cluster_uid="c")

    told = within_bounds(state)

    assert len(codec.encode(state)) > codec.MAX_BYTES > len(codec.wrap(told, "s", at=NOW))
    assert told == replace(state, hard_budget_namespaces=())
    assert told.unplanned == Unplanned(protecting=("hardBudgetNamespaces",))
    assert within_bounds(told) is told


def test_under_the_brake_mode_off_is_told_and_the_rules_of_protection_stay() -> None:
    policy = Policy(namespace_modes={"a": "observe"}, protection=Protection(namespaces=("kube-system",)))
    before = state_of(policy, "r", mode="enforce", cluster_uid="c")

    everywhere = state_of(braked(policy, Brake(everywhere=True)), "r", mode="enforce", cluster_uid="c")
    some = state_of(braked(policy, Brake(namespaces=frozenset({"b"}))), "r", mode="enforce", cluster_uid="c")

    assert (everywhere.mode, everywhere.namespace_modes) == ("off", {})
    assert (some.mode, some.namespace_modes) == ("enforce", {"a": "observe", "b": "off"})
    assert everywhere.unplanned == some.unplanned == before.unplanned
