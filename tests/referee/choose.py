"""Choose requests, replies and orders of all kinds from the streams of real clusters.

MAKEWAY_KEEP_STREAMS=build/streams make integration
make referee        # python -m referee.choose build/streams
"""

import argparse
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from makeway.bus.codec import unwrap, unwrap_order
from makeway.bus.decisions import DecisionRecord
from makeway.bus.errors import Malformed
from makeway.bus.messages import EvictionOrder
from makeway.planner.offline.replaying import differences
from makeway.planner.recording.entries import RecordingError
from referee.kept import KEPT, Answer, Kept, answered, decided_in, save
from referee.streams import Streams

WANTED = 300


@dataclass(frozen=True)
class Found:
    """A decision that is made again as it was, and the last part of its recording that it needs."""

    recording: str
    part: int
    answer: Answer
    order: EvictionOrder | None

    @property
    def kind(self) -> tuple[str, ...]:
        """What it is like: of each kind a few are kept."""
        record, order = self.answer.record, self.order
        refusal = record.diagnosis.reason if record.diagnosis else ""
        written = "" if order is None else f"external {order.is_external} awaits {bool(order.awaited)}"
        units = order is not None and any(victim.unit for victim in order.victims)
        return (record.kind, record.mode, record.status, refusal, written, f"units {units}")


def read(directory: Path) -> tuple[dict[str, tuple[bytes, ...]], list[Found], Counter[str]]:
    """Return the recordings, their decisions, and how many come out otherwise, by the first field."""
    recordings: dict[str, tuple[bytes, ...]] = {}
    found: list[Found] = []
    other: Counter[str] = Counter()
    for path in sorted(directory.glob("*.msgpack")):
        streams = msgspec.msgpack.decode(path.read_bytes(), type=Streams)
        records = {one.decision_id: one for one in _records(streams)}
        orders = {one.decision_id: one for one in _orders(streams)}
        for subject, packed in streams.recordings.items():
            parts = tuple(zlib.decompress(part) for part in packed)
            name = f"{path.stem}/{subject}"
            try:
                for number, replay, decided in decided_in(parts):
                    record = records.get(decided.decision_id)
                    if record is None:
                        continue
                    answer = answered(replay, decided)
                    if different := differences(record, answer.record):
                        other[different[0].field] += 1
                        continue
                    found.append(Found(name, number, answer, orders.get(decided.decision_id)))
            except RecordingError as error:
                other[str(error)] += 1
            recordings[name] = parts
    return recordings, found, other


def choose(found: list[Found], wanted: int) -> list[Found]:
    """Take of each kind in turn, first where the recording is needed anyway."""
    by_kind: dict[tuple[str, ...], list[Found]] = defaultdict(list)
    for one in found:
        by_kind[one.kind].append(one)
    chosen: list[Found] = []
    reach: dict[str, int] = {}
    while by_kind and len(chosen) < wanted:
        for kind in sorted(by_kind, key=lambda one: (len(by_kind[one]), one)):
            if len(chosen) == wanted:
                break
            rest = by_kind[kind]
            best = min(rest, key=lambda one: (one.part > reach.get(one.recording, -1), one.part))
            rest.remove(best)
            if not rest:
                del by_kind[kind]
            reach[best.recording] = max(best.part, reach.get(best.recording, -1))
            chosen.append(best)
    return chosen


def _records(streams: Streams) -> Iterator[DecisionRecord]:
    for data in streams.decisions:
        try:
            message = unwrap(data)[1]
        except Malformed:
            continue  # tests write some on purpose
        if isinstance(message, DecisionRecord):
            yield message


def _orders(streams: Streams) -> Iterator[EvictionOrder]:
    for data in streams.orders:
        try:
            yield unwrap_order(data)
        except Malformed:
            continue


def main() -> int:
    """Read the command line, choose, write."""
    parser = argparse.ArgumentParser(prog="python -m referee.choose", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--count", type=int, default=WANTED)
    parser.add_argument("--into", type=Path, default=KEPT)
    arguments = parser.parse_args()
    recordings, found, other = read(arguments.directory)
    chosen = choose(found, arguments.count)
    reach: dict[str, int] = {}
    for one in chosen:
        reach[one.recording] = max(one.part, reach.get(one.recording, -1))
    kept = Kept(
        parts=tuple(recordings[name][: last + 1] for name, last in sorted(reach.items())),
        answers={one.answer.record.decision_id: one.answer for one in chosen},
        orders=tuple(one.order for one in chosen if one.order is not None),
    )
    save(arguments.into, kept)
    print(f"{len(found)} decisions in {len(recordings)} recordings; come out otherwise: {dict(other)}")
    print(f"kept {len(kept.answers)} answers and {len(kept.orders)} orders of {len(kept.parts)} recordings")
    for kind, count in sorted(Counter(one.kind for one in chosen).items()):
        print(f"  {count:3} {' · '.join(part for part in kind if part)}")
    print(f"{arguments.into}: {arguments.into.stat().st_size:,} bytes")
    return 0 if len(chosen) >= arguments.count else 1


if __name__ == "__main__":
    sys.exit(main())
