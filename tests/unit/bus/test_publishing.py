"""Publishing against a stream that answers as told: what a single server never says."""

import asyncio
from collections.abc import Mapping

import pytest

from builders_bus import NOW
from makeway.bus.errors import BusUnavailable
from makeway.bus.nats import publishing
from makeway.bus.nats.jetstream import Ack, JetStreamError, StoredMessage
from makeway.bus.nats.publishing import AlreadyExists, Publication, Published, PublishRefused, publish
from narrowing import as_a, there

IN_PROCESS = JetStreamError("publish", 409, 10158, "duplicate message id is in process")
ANOTHER_IN_PROCESS = JetStreamError("publish", 400, 10164, "wrong last sequence")
WRONG_SEQUENCE = JetStreamError("publish", 400, 10071, "wrong last sequence: 4")
NO_LEADER = JetStreamError("publish", 503, 10008, "system temporarily unavailable")
NO_ANSWER = BusUnavailable("no answer in time")


class ScriptedStream:
    """Answers each publish with the next of its script, and holds one message."""

    def __init__(self, *script: Exception | Ack, holds: bytes | None = None) -> None:
        self.script = list(script)
        self.holds = holds
        self.published: list[tuple[bytes, Mapping[str, str]]] = []

    async def publish(
        self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout_seconds: float
    ) -> Ack:
        self.published.append((data, headers))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        return None if self.holds is None else StoredMessage(subject, 4, NOW, self.holds)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        return

    monkeypatch.setattr(asyncio, "sleep", at_once)


async def order(stream: ScriptedStream, *, only_writer: bool = False) -> Published | AlreadyExists:
    one = Publication("order", "S", "s.a", "ord-1", b"ours", 3, only_writer=only_writer)
    return await publish(stream, one)  # type: ignore[arg-type] # what publishing needs of it


async def test_every_attempt_is_the_same_message_with_the_same_expectation() -> None:
    stream = ScriptedStream(NO_ANSWER, NO_ANSWER, Ack(4, duplicate=False))

    assert await order(stream) == Published(4)
    assert (
        stream.published
        == [(b"ours", {"Nats-Msg-Id": "ord-1", "Nats-Expected-Last-Subject-Sequence": "3"})] * 3
    )


async def test_an_attempt_that_was_stored_after_all_is_found_to_be_ours() -> None:
    assert await order(ScriptedStream(NO_ANSWER, WRONG_SEQUENCE, holds=b"ours")) == Published(4)


@pytest.mark.parametrize(
    ("answer", "sequence"), [(WRONG_SEQUENCE, 4), (Ack(5, duplicate=True), 5)], ids=["one-server", "cluster"]
)
async def test_the_only_writer_of_a_subject_knows_an_earlier_attempt_by_its_sequence(
    answer: Exception | Ack, sequence: int
) -> None:
    stream = ScriptedStream(NO_ANSWER, answer, holds=b"never read")

    assert await order(stream, only_writer=True) == Published(sequence)


async def test_the_only_writer_of_a_subject_is_told_where_the_expected_message_is_gone() -> None:
    gone = JetStreamError("publish", 400, 10071, "wrong last sequence: 2")

    assert await order(ScriptedStream(gone), only_writer=True) == AlreadyExists(None)


async def test_anothers_message_is_handed_back() -> None:
    answer = as_a(AlreadyExists, await order(ScriptedStream(WRONG_SEQUENCE, holds=b"theirs")))

    assert there(answer.existing).data == b"theirs"


async def test_the_same_id_with_another_content_is_anothers_message() -> None:
    as_a(AlreadyExists, await order(ScriptedStream(Ack(4, duplicate=True), holds=b"theirs")))


@pytest.mark.parametrize("still_open", [IN_PROCESS, ANOTHER_IN_PROCESS, NO_LEADER])
async def test_while_the_servers_still_agree_the_publish_is_repeated(still_open: JetStreamError) -> None:
    assert await order(ScriptedStream(still_open, Ack(4, duplicate=False))) == Published(4)


async def test_what_stays_open_is_reported_as_unknown() -> None:
    with pytest.raises(BusUnavailable):
        await order(ScriptedStream(*[IN_PROCESS] * publishing._ATTEMPTS))


async def test_a_refusal_for_good_is_not_repeated() -> None:
    stream = ScriptedStream(JetStreamError("publish", 400, 10054, "message size exceeds maximum allowed"))

    with pytest.raises(PublishRefused, match="size exceeds"):
        await order(stream)
    assert len(stream.published) == 1


async def test_a_message_that_was_pushed_out_meanwhile_leaves_nothing_to_hand_back() -> None:
    assert await order(ScriptedStream(WRONG_SEQUENCE)) == AlreadyExists(None)
