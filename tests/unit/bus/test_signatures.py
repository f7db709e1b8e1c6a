"""What is made of orders, outcomes and control states by their signatures."""

from datetime import UTC, datetime

import msgspec
import pytest
from prometheus_client import REGISTRY

from builders_bus import make_order, make_outcome
from builders_keys import KEYS, PUBLIC_DATA, signatures
from makeway.bus import codec
from makeway.bus.control import ControlState
from makeway.bus.errors import KeyNotPublished, Malformed
from makeway.bus.messages import EvictionOrder
from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.bus.signing.signatures import FAILURES, FORGERIES, Signatures, kind_of
from makeway.bus.subjects import Subjects

SUBJECTS = Subjects()
ORDER = make_order()
QUOTA_ORDER = make_order(kind="quota", preemptor=None, queue="root.a")
SUBJECT = SUBJECTS.order(ORDER)


def written(by: Signatures, order: EvictionOrder = ORDER) -> bytes:
    return by.wrap(order, "makeway/scheduler/test", SUBJECTS.order(order))


def refused(data: bytes, subject: str = SUBJECT, by: Signatures | None = None) -> str:
    with pytest.raises(Malformed) as error:
        (by or signatures()).order(data, subject)
    return error.value.reason


def failures(kind: str, reason: str) -> float:
    labels = {"kind": kind, "reason": reason}
    return REGISTRY.get_sample_value("makeway_bus_signature_failures_total", labels) or 0.0


def test_what_a_part_signs_the_others_take() -> None:
    parts, outcome = signatures(), make_outcome(ORDER)
    subject = SUBJECTS.outcome(ORDER.order_id)

    assert parts.order(written(parts), SUBJECT) == ORDER
    assert parts.order(written(parts, QUOTA_ORDER), SUBJECTS.order(QUOTA_ORDER)) == QUOTA_ORDER
    assert parts.outcome(parts.wrap(outcome, "makeway/evictor/test", subject), subject) == outcome


def test_an_order_without_a_signature_is_refused_and_counted() -> None:
    before = failures("order", "unsigned")

    assert refused(written(Signatures())) == "unsigned"
    assert failures("order", "unsigned") == before + 1


@pytest.mark.parametrize("bridge", ["makeway/scheduler/s", "makeway/nominator/n"])
def test_an_order_for_a_pod_is_the_planners_to_sign(bridge: str) -> None:
    order = make_order(writer=bridge)
    planners = signatures("require", SigningKind.ORDER)

    assert signatures().order(written(planners, order), SUBJECT) == order
    assert refused(written(signatures("off", SigningKind.OUTCOME), order)) == "unsigned"


def test_nothing_is_taken_before_the_public_keys_are_known() -> None:
    assert refused(written(signatures()), by=Signatures("require")) == "unknown-key"


def test_log_takes_what_fails_and_counts_it() -> None:
    before = failures("order", "unsigned")

    assert signatures("log").order(written(Signatures()), SUBJECT) == ORDER
    assert failures("order", "unsigned") == before + 1


def test_off_takes_everything_and_counts_nothing() -> None:
    before = failures("order", "unsigned")

    assert Signatures().order(written(Signatures()), SUBJECT) == ORDER
    assert failures("order", "unsigned") == before


def test_a_key_that_the_others_do_not_know_is_named() -> None:
    key = SigningKey.new()
    parts = Signatures("require", signing={SigningKind.ORDER: key}, public=PublicKeys())

    assert parts.unknown_keys() == {SigningKind.ORDER: key.key_id}
    assert signatures().unknown_keys() == {}


@pytest.mark.parametrize("message", [ORDER, QUOTA_ORDER])
def test_nothing_is_signed_with_a_key_that_is_not_published(message: EvictionOrder) -> None:
    kind, part = kind_of(message), signatures()
    part.public = PublicKeys.parse(
        {name: text for name, text in PUBLIC_DATA.items() if name != f"{kind}.pem"}
    )

    with pytest.raises(KeyNotPublished, match=f"not published: {kind} by {KEYS[kind].key_id}"):
        written(part, message)
    assert part.unpublished() == part.unpublished(kind) != ""
    assert part.unpublished(SigningKind.CONTROL) == ""


def test_a_key_that_is_not_published_signs_where_signatures_are_only_counted() -> None:
    part = Signatures("log", signing=signatures().signing, public=PublicKeys.parse({}))

    assert written(part)
    assert part.unpublished() == ""


def test_what_a_key_signed_that_counted_until_lately_is_not_taken_and_no_forgery() -> None:
    before, reader = signatures(), signatures()
    renewed = {**PUBLIC_DATA, "order.pem": SigningKey.new().public_pem()}
    reader.public, reader.retired = PublicKeys.parse(renewed), (before.public,)

    assert refused(written(before), by=reader) == "retired-key"
    assert "retired-key" in FAILURES - FORGERIES
    changed = written(before, make_order(order_id="another")).replace(b'"another"', b'"an0ther"')
    assert refused(changed, by=reader) == "unknown-key"


def test_what_another_wrote_is_escaped_in_the_reason() -> None:
    envelope = codec.envelope_of(ORDER, "makeway/scheduler/test")
    hostile = msgspec.structs.replace(envelope, id="\x1b[31m" + "x" * 10_000, keyid="\n", signature="x")

    with pytest.raises(Malformed) as error:
        signatures().order(codec.encode(hostile), SUBJECT)

    assert "\x1b" not in error.value.detail
    assert "\n" not in error.value.detail
    assert len(error.value.detail) < 500


def test_a_part_tells_its_mode_its_keys_and_what_failed() -> None:
    part = signatures("log", SigningKind.OUTCOME)
    part.order(written(Signatures()), SUBJECT)
    part.trouble = "outcome.pem: not there"

    key = KEYS[SigningKind.OUTCOME].key_id
    assert part.describe() == f"log; signs outcome by {key}; messages failed: 1; outcome.pem: not there"
    assert Signatures().describe() == "off"


def test_a_control_state_of_the_future_is_refused_though_it_is_signed() -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    state = ControlState(revision=2**62, mode="enforce", cluster_uid="c")
    data = signatures().wrap(state, "makeway/planner/test", SUBJECTS.control, at=now)

    with pytest.raises(Malformed, match="future-revision"):
        signatures().control(data, SUBJECTS.control, now)
