import json
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders_bus import NOW, make_decision, make_group_order, make_order, make_outcome, make_preemptor
from makeway.bus import codec
from makeway.bus.control import ControlState
from makeway.bus.errors import Malformed
from makeway.bus.messages import MOST_MEMBERS, EvictionOrder, Placement
from makeway.bus.plan import PlanReply, PlanRequest
from makeway.bus.subjects import Subjects
from makeway.dev import samples


def request(pod: msgspec.Raw) -> PlanRequest:
    minimal = samples.MESSAGES["plan-request.minimal"]
    assert isinstance(minimal, PlanRequest)
    return msgspec.structs.replace(minimal, classes=(msgspec.structs.replace(minimal.classes[0], pod=pod),))


def test_an_envelope_is_named_after_its_message() -> None:
    order = make_order("uid-1")
    outcome, decision = make_outcome(order), make_decision()

    heads = [codec.unwrap(codec.wrap(message, "makeway/a/b"))[0] for message in (order, outcome, decision)]

    assert [head.id for head in heads] == [order.order_id, f"out-{order.order_id}", decision.decision_id]
    assert [head.subject for head in heads] == ["uid-1", "uid-1", "uid-preemptor"]
    assert [head.time for head in heads] == [NOW, outcome.finished_at, NOW]
    assert {head.source for head in heads} == {"makeway/a/b"}


def test_a_control_state_takes_the_time_it_is_given_and_needs_one() -> None:
    state = ControlState(revision=3, mode="off", cluster_uid="c")

    envelope, message = codec.unwrap(codec.wrap(state, "makeway/a/b", at=NOW))

    assert (envelope.time, message) == (NOW, state)
    with pytest.raises(ValueError, match="no time of its own"):
        codec.wrap(state, "makeway/a/b")


def test_the_keys_of_a_map_are_written_in_order_whatever_order_they_were_put_in() -> None:
    states = [
        ControlState(revision=1, mode="off", cluster_uid="c", namespace_modes=modes)  # type: ignore[arg-type]
        for modes in ({"b": "off", "a": "observe"}, {"a": "observe", "b": "off"})
    ]

    assert codec.encode(states[0]) == codec.encode(states[1])


def test_a_field_nobody_knows_is_ignored() -> None:
    data = json.loads(codec.wrap(make_order("uid-1"), "makeway/a/b"))
    data["traceparent"] = "00-1-2-3"
    data["data"]["colour"] = {"name": "blue"}

    assert isinstance(codec.unwrap(json.dumps(data).encode())[1], EvictionOrder)


def test_an_order_where_an_outcome_is_expected_is_refused() -> None:
    with pytest.raises(Malformed) as refused:
        codec.unwrap_outcome(codec.wrap(make_order(), "makeway/a/b"))

    assert refused.value.reason == "unknown-type"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"order_id": bad} for bad in ("a.b", "a b", "*", ">", "a\r\nPUB x", "a\n", "", "x" * 129)),
        {"preemptor": make_preemptor("a.>")},
        {"not_after": datetime(2026, 1, 1)},  # noqa: DTZ001 - the very thing that is refused
    ],
    ids=repr,
)
def test_what_could_not_be_in_a_subject_and_a_time_without_offset_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Malformed) as refused:
        codec.unwrap_order(codec.wrap(make_order(**wrong), "makeway/a/b"))

    assert refused.value.reason == "invalid"


def test_an_order_for_a_group_is_about_the_group() -> None:
    order = make_group_order("uid-g")

    envelope, read = codec.unwrap(codec.wrap(order, "makeway/a/b"))

    assert read == order
    assert envelope.subject == order.preemptor_uid == "uid-g"
    assert Subjects().order(order) == "makeway.v1.orders.group.uid-g"
    assert Subjects().order(msgspec.structs.replace(order, group=None)) == ""
    as_pod = msgspec.structs.replace(make_order("uid-p"), group=order.group)
    assert (as_pod.preemptor_uid, Subjects().order(as_pod)) == ("uid-p", "makeway.v1.orders.pod.uid-p")


def test_a_group_order_with_more_members_than_a_plan_request_may_have_is_refused() -> None:
    member = Placement(namespace="n", name="a", uid="u", node="n")
    most = make_group_order(members=(member,) * MOST_MEMBERS)

    assert codec.unwrap_order(codec.wrap(most, "makeway/a/b")) == most
    with pytest.raises(Malformed):
        codec.unwrap_order(
            codec.wrap(msgspec.structs.replace(most, members=(*most.members, member)), "makeway/a/b")
        )


def test_times_of_another_zone_are_the_same_moment() -> None:
    data = codec.wrap(make_order(), "makeway/a/b").replace(
        b"2026-01-31T12:01:00Z", b"2026-01-31T13:01:00+01:00"
    )

    assert codec.unwrap_order(data).not_after == datetime(2026, 1, 31, 12, 1, tzinfo=UTC)


def test_a_message_larger_than_the_server_takes_is_refused_before_it_is_read() -> None:
    with pytest.raises(Malformed) as refused:
        codec.decode(PlanRequest, b" " * (codec.MAX_BYTES + 1))

    assert refused.value.reason == "too-large"


def test_brackets_within_texts_do_not_count_as_depth() -> None:
    pod = msgspec.Raw(msgspec.json.encode({"annotation": '[{"' * 500 + '\\"'}))

    assert codec.decode(PlanRequest, codec.encode(request(pod=pod))).classes[0].pod == pod


def test_a_wide_message_is_not_a_deep_one() -> None:
    pod = msgspec.Raw(msgspec.json.encode([[{}]] * 1000))

    assert codec.decode(PlanRequest, codec.encode(request(pod=pod)))


@pytest.mark.parametrize("depth", [codec.MAX_DEPTH + 1, 10_000, 300_000])
def test_nesting_beyond_the_bound_is_refused_and_never_overflows(depth: int) -> None:
    pod = msgspec.Raw(b"[" * depth + b"]" * depth)

    with pytest.raises(Malformed) as refused:
        codec.decode(PlanRequest, codec.encode(request(pod=pod)))

    assert refused.value.reason == "too-deep"


def test_hostile_text_is_looked_through_in_linear_time() -> None:
    hostile = b"[" * 200 + b'\\"[' * 300_000
    started = time.process_time()

    with pytest.raises(Malformed):
        codec.decode(PlanRequest, hostile)

    assert time.process_time() - started < 2


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_malformed(data: bytes) -> None:
    for decode in (partial(codec.decode, PlanRequest), partial(codec.decode, PlanReply), codec.unwrap):
        with pytest.raises(Malformed):
            decode(data)


@given(st.data())
def test_no_damage_to_a_good_message_raises_anything_but_malformed(data: st.DataObject) -> None:
    good = codec.encode(samples.ENVELOPES["order-envelope.full"])
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:at] + data.draw(st.binary(max_size=3)) + good[at + data.draw(st.integers(0, 3)) :]

    try:
        codec.unwrap(damaged)
    except Malformed:
        return
