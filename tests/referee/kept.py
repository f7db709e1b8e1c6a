"""Plan requests of real clusters, the replies to them and the orders that followed, in one file.

A change that is to leave decisions as they are is judged by it: every request is answered again, on the
snapshot of its recording, and every order is read, judged and compared with its decision.
"""

import lzma
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import EvictionOrder
from makeway.planner.offline.replaying import AnyDecided, Replay
from makeway.planner.plan import reply
from makeway.planner.plan.decision import QuotaInputs, record_of

KEPT = Path(__file__).parent / "kept.xz"
RECORDED_REPLY = "recorded"
"""Stands for the planner that replied; who it was is not compared."""

Reply: TypeAlias = dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request: the record, and the reply in JSON; {} for a quota, which has no request."""

    record: DecisionRecord
    reply: Reply


class Kept(msgspec.Struct, frozen=True):
    """`parts`: of each recording, unpacked, in their order. `answers`: by decision id."""

    parts: tuple[tuple[bytes, ...], ...]
    answers: dict[str, Answer]
    orders: tuple[EvictionOrder, ...]


def save(path: Path, kept: Kept) -> None:
    """Write a file that `load` reads."""
    path.write_bytes(lzma.compress(msgspec.msgpack.encode(kept), preset=9))


def load(path: Path = KEPT) -> Kept:
    """Read what `save` wrote."""
    return msgspec.msgpack.decode(lzma.decompress(path.read_bytes()), type=Kept)


def decided_in(parts: Iterable[bytes]) -> Iterator[tuple[int, Replay, AnyDecided]]:
    """Return each decision of a recording, with the number of its part and the snapshot it was made on.

    Raises RecordingError.
    """
    replay = Replay()
    for number, part in enumerate(parts):
        for decided in replay.read(zlib.compress(part, 0)):
            yield number, replay, decided


def answered(replay: Replay, decided: AnyDecided) -> Answer:
    """Decide again, and write the reply. Raises as `Replay.again`."""
    if isinstance(decided, QuotaInputs):
        return Answer(replay.again(decided), {})
    decision = replay.decision(decided)
    written = msgspec.structs.replace(reply.reply_of(decision), planner=RECORDED_REPLY)
    return Answer(record_of(decision), _plain(written))


def _plain(message: msgspec.Struct) -> Reply:
    found: Reply = msgspec.json.decode(msgspec.json.encode(message))
    return found
