"""What is recorded gives the same decisions again, whatever came between them."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from builders_bus import plan_request
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import BusUnavailable
from makeway.bus.messages import Placement
from makeway.bus.plan import PlanRequest, Profile
from makeway.core.k8s.importance import microseconds
from makeway.core.k8s.nodes import RequiredNodes
from makeway.core.k8s.objects import Metadata, Namespace
from makeway.core.policy.document import LostWork, Policy, Protection, parse_policy
from makeway.core.policy.lost_work import CHECKPOINT_INTERVAL
from makeway.core.queues.tree import QueueSpec, QueueTree
from makeway.core.queues.victims import run_to_end
from makeway.planner.metrics import PlannerMetrics
from makeway.planner.offline.replaying import Replay, differences
from makeway.planner.plan.decision import Decision, QuotaInputs, record_of
from makeway.planner.plan.left_out import NOTHING_PASSED_OVER, PassedOver
from makeway.planner.plan.node_scores import PlanCache
from makeway.planner.plan.request import question_of
from makeway.planner.plan.unfiltered import answer
from makeway.planner.quota import decide as quota_plan
from makeway.planner.recording import entries, recorder
from makeway.planner.recording.entries import RecordingError
from makeway.planner.recording.journal import Journal, contents
from makeway.planner.recording.recorder import Recorder
from makeway.planner.snapshot.changes import (
    Adopt,
    Enforce,
    KnowVolumes,
    PutBudget,
    PutClaim,
    PutDevices,
    PutNamespace,
    PutNode,
    PutPod,
    PutPriorityClass,
    PutStorageClass,
    PutVolume,
    RemoveBudget,
    RemoveNamespace,
    RemoveNode,
    RemovePod,
    RemovePriorityClass,
)
from makeway.planner.snapshot.state import Snapshot
from makeway.planner.snapshot.volumes import ClaimRecord, VolumeRecord
from unit.planner.building import NOW, make_budget, make_class, make_node, make_pod, settle
from unit.planner.grouping import pod_group, put_group
from unit.planner.offline_building import pod

TREE = QueueTree.of(QueueSpec(name="root", children=(QueueSpec(name="ml", maximum={"cpu": 3000}),)))
WEB = {"app": "web", "queue": "root.ml"}


def request(
    uid: str,
    priority: int,
    cpu: int,
    nominated: Mapping[str, str] | None = None,
    *,
    ignore_columns: bool = False,
) -> PlanRequest:
    volumes = [{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]
    manifest = pod(uid, cpu=str(cpu), priority=priority, labels=WEB, schedulerName="s", volumes=volumes)
    manifest["metadata"]["uid"] = uid
    return plan_request(
        manifest,
        cluster_uid="c",
        max_candidates=4,
        profile=Profile(name="s"),
        nominations=tuple(Placement("default", name, name, node) for name, node in (nominated or {}).items()),
        ignore_columns=ignore_columns,
    )


class JournaledSnapshot(Snapshot):
    """A snapshot with a journal that notes what it applies."""

    def __init__(self, *, chunk: int | None = None) -> None:
        self.journal = Journal(lambda: self.undecided)
        super().__init__(chunk=chunk, applied=self.journal.note)


def decide(
    snapshot: JournaledSnapshot,
    number: int,
    asked: PlanRequest,
    in_flight: dict[str, str],
    left_out: PassedOver = NOTHING_PASSED_OVER,
) -> DecisionRecord:
    question = question_of(asked, in_flight, frozenset()).leaving_out(left_out)
    decision = Decision(
        decision_id=f"dec-{number}",
        planner="p",
        at=NOW + timedelta(seconds=number),
        request=asked,
        question=question,
        result=answer(snapshot, question, NOW + timedelta(seconds=number), PlanCache()),
        policy_revision=snapshot.exemptions.revision,
        duration_seconds=0.1,
        queue=snapshot.queues.path_of(question.preemptor),
    )
    return record_of(snapshot.journal.decided(decision))


def decide_quota(snapshot: JournaledSnapshot, tree: QueueTree, number: int) -> DecisionRecord:
    inputs = QuotaInputs(
        decision_id=f"quota-{number}",
        at=NOW,
        queue="root.ml",
        maximum={"cpu": 1000},
        mode="enforce",
        leaving=frozenset("a"),
        running=frozenset(),
        refused={"b": "default/b: 403"},
        stuck={"c": "default/c: 503"},
    )
    found = run_to_end(quota_plan.answering(snapshot, tree, inputs))
    record = quota_plan.record_of(inputs, found, snapshot, cluster_uid="c", planner="p")
    return snapshot.journal.quota_decided(record, inputs)


Step = Callable[[JournaledSnapshot], None]


def pods(draw: Any) -> Step:
    uid = draw(st.sampled_from("abcdefgh"))
    node = draw(st.sampled_from(["n1", "n2", "n3", ""]))
    found = make_pod(
        uid,
        node,
        draw(st.integers(0, 3)),
        1000 * draw(st.integers(1, 2)),
        labels=draw(st.sampled_from([{}, WEB])),
        requests=draw(st.sampled_from([None, None, {"cpu": 1000, "x.io/gpu": 1}])),
        terminating=draw(st.booleans()),
        name=draw(st.sampled_from([uid, "same"])),
        start_micros=microseconds(NOW) - 10**9 * draw(st.integers(1, 9)),
    )
    saved = draw(st.sampled_from([0, microseconds(NOW) - 10**8]))
    facts = msgspec.structs.replace(found.facts, checkpointed_micros=saved, priority_class="low")
    found = msgspec.structs.replace(found, facts=facts)
    return lambda snapshot: snapshot.apply(PutPod(found))


def changes(draw: Any) -> Step:
    name, allowed = draw(st.sampled_from(["n1", "n2", "n3"])), draw(st.integers(0, 2))
    policy = Policy(
        disruption_budgets=draw(st.sampled_from(["soft", "hard"])),
        hard_budget_namespaces=("*",),
        protection=Protection(minimum_priority=draw(st.sampled_from([None, 2]))),
        lost_work=LostWork(draw(st.sampled_from(["off", "aboveSum"]))),
    )
    saves = draw(st.sampled_from([None, {CHECKPOINT_INTERVAL: "30s"}]))
    step: Step = draw(
        st.sampled_from(
            [
                lambda s: s.apply(PutNode(make_node(name, 2000 + 1000 * allowed))),
                lambda s: s.apply(PutNode(make_node(name, 3000, **{"x.io/gpu": allowed}))),
                lambda s: s.retain_pods(set("abcd")),
                lambda s: s.pending_updates.apply_chunk(),
                lambda s: s.apply(RemoveNode(name)),
                lambda s: s.apply(RemovePod(name)),
                lambda s: s.apply(RemovePod("abc"[allowed])),
                lambda s: s.apply(PutBudget(make_budget("web", {"app": "web"}, allowed, "abc"[:allowed]))),
                lambda s: s.apply(RemoveBudget(("default", "web"))),
                lambda s: s.apply(PutClaim.of(("default", "x"), ClaimRecord("v", exclusive=bool(allowed)))),
                lambda s: s.apply(PutVolume("v", VolumeRecord(RequiredNodes(terms=())) if allowed else None)),
                lambda s: s.apply(KnowVolumes(bool(allowed))),
                lambda s: s.apply(
                    PutStorageClass(
                        "cde"[allowed], RequiredNodes(terms=()) if allowed else RequiredNodes(), bool(allowed)
                    )
                ),
                lambda s: s.apply(PutDevices(frozenset({"x.io/gpu"}) if allowed else None)),
                lambda s: s.apply(PutPriorityClass(make_class("low", 5, allowed, annotations=saves))),
                lambda s: s.apply(RemovePriorityClass("low")),
                lambda s: s.apply(PutNamespace(Namespace(metadata=Metadata(name="default", uid="d")))),
                lambda s: s.apply(RemoveNamespace("default")),
                lambda s: s.apply(Enforce(policy, "rev", ("ConfigMap", "m", "p"))),
                lambda s: s.apply(Adopt(TREE if allowed else None, "queues")),
            ]
        )
    )
    return step


@st.composite
def histories(draw: Any) -> list[Step | tuple[PlanRequest, dict[str, str], PassedOver]]:
    steps: list[Step | tuple[PlanRequest, dict[str, str], PassedOver]] = [
        lambda s: s.apply(PutNode(make_node("n1", 3000))),
        lambda s: s.apply(PutNode(make_node("n2", 2000))),
    ]
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.integers(0, 2))
        if kind == 2:
            in_flight = draw(
                st.sampled_from([{}, {"a": "ord-1"}, {"a": "ord-1", "b": "ord-1", "c": "ord-2"}])
            )
            nominated = draw(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from(["n1", "n2"])))
            asked = request(
                "asks",
                draw(st.integers(0, 4)),
                draw(st.integers(1, 3)),
                nominated,
                ignore_columns=draw(st.booleans()),
            )
            failed = frozenset(draw(st.lists(st.sampled_from(["n1", "n2"]), max_size=1)))
            kept = frozenset(draw(st.lists(st.sampled_from("abcdefgh"), max_size=2)))
            left_out = PassedOver(kept, failed, NOW, "403 Forbidden")
            steps.append((asked, in_flight, left_out))
        else:
            steps.append((pods if kind else changes)(draw))
    return steps


@settings(max_examples=int(0.6 * settings().max_examples))
@given(history=histories(), begun=st.integers(0, 20), chunk=st.sampled_from([None, 1, 2]))
def test_every_recorded_decision_comes_out_again(history: list[Any], begun: int, chunk: int | None) -> None:
    snapshot = JournaledSnapshot(chunk=chunk)
    written: list[bytes] = []
    recorded: dict[str, DecisionRecord] = {}
    for number, step in enumerate(history):
        if number == begun:
            whole = contents(snapshot, "c", "p", NOW)
            first = next(whole)
            snapshot.journal.begin("rec-1")
            written += [entries.encode_entry(one) for one in (first, *whole)]
        if callable(step):
            step(snapshot)
        else:
            settle(snapshot)
            records = [decide(snapshot, number, *step)]
            if snapshot.queues.tree is not None:
                records.append(decide_quota(snapshot, snapshot.queues.tree, number))
            recorded.update({one.decision_id: one for one in records if one.recording})
    written += [entries.encode_entry(one) for one in snapshot.journal.take(len(snapshot.journal))]

    replay = Replay()
    chunks = [entries.pack(n, written[n * 7 : n * 7 + 7]) for n in range(len(written) // 7 + 1)]
    for part in chunks:
        for decided in replay.read(part):
            again = replay.again(decided)
            assert differences(recorded.pop(decided.decision_id), again) == []
    assert not recorded


def test_what_is_decided_while_budgets_are_applied_is_in_no_recording() -> None:
    snapshot = JournaledSnapshot(chunk=1)
    snapshot.apply(PutNode(make_node("n1", 3000)))
    for uid in "ab":
        snapshot.apply(PutPod(make_pod(uid, "n1", 100, 1000, labels={"app": "web"})))
    snapshot.apply(Adopt(TREE, "queues"))
    settle(snapshot)
    snapshot.updates.serving = True
    snapshot.journal.begin("rec-1")

    def recordings(number: int) -> set[str]:
        decided = decide(snapshot, number, request("asks", 4, 3), {})
        return {decided.recording, decide_quota(snapshot, TREE, number).recording}

    snapshot.apply(PutBudget(make_budget("web", {"app": "web"}, 0)))

    assert snapshot.undecided
    assert recordings(1) == {""}
    settle(snapshot)
    assert recordings(2) == {"rec-1"}


def test_a_unit_whose_pods_came_or_changed_in_another_order_comes_out_again() -> None:
    snapshot = JournaledSnapshot()
    put_group(snapshot, pod_group("g"))
    for name in ("n1", "n2"):
        snapshot.apply(PutNode(make_node(name, 3000)))
    for uid, node in (("a", ""), ("b", "n2"), ("a", "n1")):
        snapshot.apply(PutPod(make_pod(uid, node, size=1000, group="g")))
    whole = contents(snapshot, "c", "p", NOW)
    first = next(whole)
    snapshot.journal.begin("rec-1")
    written = [entries.encode_entry(one) for one in (first, *whole)]
    record = decide(snapshot, 0, request("asks", 4, 3), {})
    written += [entries.encode_entry(one) for one in snapshot.journal.take(len(snapshot.journal))]

    replay = Replay()
    (decided,) = replay.read(entries.pack(0, written))

    assert {one.uid for one in record.victims} == {"a", "b"}
    assert differences(record, replay.again(decided)) == []


def test_a_resource_that_was_known_before_the_recording_makes_no_difference() -> None:
    snapshot = JournaledSnapshot()
    snapshot.apply(PutPod(make_pod("a", "n1", requests={"cpu": 1000, "x.io/gpu": 1})))
    snapshot.apply(PutNode(make_node("n1", 3000, **{"x.io/gpu": 1})))
    snapshot.apply(PutNode(make_node("n1", 3000)))
    whole = contents(snapshot, "c", "p", NOW)
    first = next(whole)
    snapshot.journal.begin("rec-1")
    written = [entries.encode_entry(one) for one in (first, *whole)]
    snapshot.apply(PutNode(make_node("n1", 3000, **{"x.io/gpu": 1})))
    snapshot.apply(Adopt(QueueTree.of(QueueSpec(name="root", guaranteed={"x.io/gpu": 1})), "queues"))
    record = decide(snapshot, 0, request("asks", 4, 3), {})
    written += [entries.encode_entry(one) for one in snapshot.journal.take(len(snapshot.journal))]

    replay = Replay()
    (decided,) = replay.read(entries.pack(0, written))

    assert differences(record, replay.again(decided)) == []


def test_pods_that_stay_nominated_and_in_flight_are_written_once() -> None:
    snapshot = JournaledSnapshot()
    snapshot.journal.begin("rec-1")
    many = {f"uid-{number}": "n1" for number in range(1000)}
    orders = {f"victim-{number}": f"ord-{number}" for number in range(1000)}
    for number in range(2):
        decide(snapshot, number, request("asks", 0, 1, many | {f"p{number}": "n1"}), orders)

    first, second = (len(entries.encode_entry(one)) for one in snapshot.journal.take(2))

    assert first > 50_000
    assert second < 2_000


def test_a_difference_names_its_field_and_both_values() -> None:
    snapshot = JournaledSnapshot()
    snapshot.apply(PutNode(make_node("n1", 1000)))
    snapshot.apply(PutPod(make_pod("a", "n1", size=1000)))
    record = decide(snapshot, 1, request("asks", 5, 1), {})
    other = msgspec.structs.replace(record, nominated_node="n2", planner="another")

    (found,) = differences(record, other)

    assert (found.field, found.recorded, found.replayed) == ("nominatedNode", "n1", "n2")


def test_a_recording_whose_beginning_or_middle_is_gone_is_not_replayed() -> None:
    chunk = entries.pack(1, [])

    with pytest.raises(RecordingError, match="its beginning is no longer kept"):
        list(Replay().read(chunk))
    replay = Replay()
    list(replay.read(entries.pack(0, [])))
    with pytest.raises(RecordingError, match="part 1 is missing"):
        list(replay.read(entries.pack(2, [])))


@pytest.mark.parametrize(
    "data", [b"", b"rubbish", entries.pack(0, [b"\xc1"])[:-3], entries.pack(0, [b"\x91\x63"])]
)
def test_what_is_no_part_of_a_recording_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingError):
        list(Replay().read(data))


def test_a_journal_that_is_never_written_down_ends_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makeway.planner.recording.journal.MOST_WAITING", 3)
    snapshot = JournaledSnapshot()
    snapshot.journal.begin("rec-1")
    for number in range(5):
        snapshot.apply(PutPod(make_pod(f"p{number}")))

    assert (len(snapshot.journal), snapshot.journal.name, snapshot.journal.overflowed) == (0, "", True)


class Stored:
    """What a recorder has published; the first `failing` attempts fail."""

    def __init__(self, failing: int = 0) -> None:
        self.parts: list[tuple[str, int, bytes]] = []
        self.failing = failing

    async def publish_recording(self, name: str, number: int, data: bytes, after: int) -> int:
        if self.failing:
            self.failing -= 1
            raise BusUnavailable("away")
        assert after == (len(self.parts) if number else 0)
        self.parts.append((name, number, data))
        return len(self.parts)


@pytest.mark.parametrize("failing", [0, 1])
async def test_a_recorder_writes_whole_recordings_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    for name in ("PAUSE_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(recorder, name, 0.001)
    monkeypatch.setattr(recorder, "LEAST_GROWTH_BYTES", 10)
    snapshot, stored = JournaledSnapshot(), Stored(failing)
    snapshot.apply(PutNode(make_node("n1", 3000)))
    recording = Recorder(
        stored,
        snapshot,
        snapshot.journal,
        PlannerMetrics(CollectorRegistry()),
        cluster_uid="c",
        identity="p",
        unsynced=lambda: "",
    )

    async with asyncio.timeout(30):
        task = asyncio.create_task(recording.record_forever())
        recorded: list[DecisionRecord] = []
        while len({name for name, _, _ in stored.parts}) < 3:
            snapshot.apply(PutPod(make_pod(f"p{len(recorded)}", "n1", size=10)))
            recorded.append(decide(snapshot, len(recorded), request("asks", 5, 1), {}))
            await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.wait({task})

    assert snapshot.journal.name == ""
    replays: dict[str, Replay] = {}
    seen = 0
    by_id = {record.decision_id: record for record in recorded}
    for name, _, data in stored.parts:
        replay = replays.setdefault(name, Replay())
        for decided in replay.read(data):
            record = by_id[decided.decision_id]
            assert record.recording == name
            assert differences(record, replay.again(decided)) == []
            seen += 1
    assert seen > 0


def test_a_recorded_pod_has_the_fields_that_planners_before_wrote() -> None:
    _, pod = msgspec.msgpack.decode(entries.encode_entry(PutPod(make_pod("a"))))

    assert entries.VERSION == 4
    assert list(pod) == [
        *("namespace", "name", "uid", "node", "priority", "start_micros", "grace_period_seconds"),
        *("terminating", "requests", "labels", "facts", "kind", "ends_micros", "health"),
        *("group", "scheduler_name", "controller"),
    ]


def test_a_policy_that_was_read_from_its_document_is_recorded() -> None:
    document = "apiVersion: makeway.dev/v1\nkind: Policy\nprotection: {namespaces: [kube-system]}\n"
    enforced = Enforce(parse_policy(document, "policy.yaml"), "r", None)

    _, read = entries.unpack(entries.pack(0, [entries.encode_entry(enforced)]))

    assert read == [enforced]
