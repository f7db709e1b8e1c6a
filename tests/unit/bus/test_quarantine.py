"""What is parked: under which id, in which headers, and how it reads back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders_bus import NOW
from makeway.bus.nats.jetstream import StoredMessage
from makeway.bus.nats.tolerant import readable
from makeway.bus.streams import quarantine
from makeway.bus.streams.quarantine import QuarantinedMessage


def parked(data: bytes = b"{", **changes: object) -> QuarantinedMessage:
    message = {
        "component": "evictor",
        "subject": "makeway.v1.orders.pod.x",
        "stream": "MAKEWAY_ORDERS",
        "sequence": 7,
        "reason": "not-json",
        "detail": "trailing characters",
        "deliveries": 2,
        "published_at": NOW,
        "data": data,
    }
    return QuarantinedMessage(**{**message, **changes})  # type: ignore[arg-type]


def raw(number: int, headers: dict[str, str], data: bytes = b"") -> StoredMessage:
    return StoredMessage("makeway.v1.quarantine.evictor", number, NOW, data, headers)


def test_what_is_parked_reads_back() -> None:
    headers, data = quarantine.encode(parked())

    (entry,) = quarantine.entries([raw(3, headers, data)])

    assert (entry.number, entry.message) == (3, parked())


def test_one_message_has_one_id_however_often_and_why_it_is_parked() -> None:
    again = parked(reason="defect", deliveries=9)
    of_a_stream_made_anew = parked(published_at=NOW + timedelta(days=1))

    assert quarantine.message_id(parked()) == quarantine.message_id(again)
    assert quarantine.message_id(parked()) != quarantine.message_id(of_a_stream_made_anew)
    assert quarantine.message_id(parked()) != quarantine.message_id(parked(component="planner"))


def test_a_payload_that_leaves_no_room_for_headers_is_cut_and_says_so() -> None:
    headers, data = quarantine.encode(parked(b"x" * (1 << 20)))

    (entry,) = quarantine.entries([raw(1, headers, data)])

    assert len(entry.message.data) == quarantine.MAX_PAYLOAD
    assert entry.message.cut_from == 1 << 20


def test_what_others_have_put_there_is_left_out() -> None:
    assert quarantine.entries([raw(1, {}), raw(3, {"Other": "1"})]) == []


@pytest.mark.parametrize("number", ["", "-1", "1e9", "9" * 40, "\u0663"])
def test_a_header_that_is_no_number_counts_as_none(number: str) -> None:
    headers, data = quarantine.encode(parked())

    (entry,) = quarantine.entries([raw(1, {**headers, quarantine.SEQUENCE: number}, data)])

    assert entry.message.sequence in (0, 3)


@given(st.text())
def test_no_text_breaks_out_of_a_header(text: str) -> None:
    safe = quarantine.safe(text)

    assert safe.isascii()
    assert safe.isprintable()
    assert len(safe) <= 500


@given(st.binary())
def test_any_bytes_become_readable_ones_and_utf_8_stays_as_it_is(data: bytes) -> None:
    text = readable(data).decode()

    assert text == data.decode() if is_utf8(data) else text.isprintable() or "\\x" in text


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
