"""Both decoders over the same hostile bytes: golden messages with values, bytes and structure damaged.

Where only one of them takes a message, it is for one of the differences that docs/consumers.md lists. No
writer of the contract makes such a message.
"""

import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from go_tests import go_test, needs_go
from makeway.bus import codec
from makeway.bus.envelope import Envelope
from makeway.bus.errors import Malformed
from makeway.bus.messages import Message
from makeway.bus.plan import PlanReply, PlanRequest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "bus/testdata"
COUNT = int(os.environ.get("MAKEWAY_CORPUS_COUNT", "4000"))
SEED = int(os.environ.get("MAKEWAY_CORPUS_SEED", "1"))

JUNK = [
    "null",
    "true",
    "-1",
    "0",
    "2147483648",
    "9223372036854775808",
    "-9223372036854775809",
    "1" + "0" * 400,
    "1.0",
    "1e3",
    "-0",
    '""',
    '"x"',
    '"a.b"',
    '"\\u0000"',
    '"\\ud800"',
    '"\\ud83d\\ude00"',
    '"' + "x" * 300 + '"',
    "[]",
    "{}",
    "[[]]",
    '{"a":{}}',
    "[null]",
    '["a",1]',
    '"2026-01-31T12:00:00Z"',
    '"2026-01-31T12:00:00.1234567Z"',
    '"2026-01-31 12:00:00Z"',
    '"2026-01-31t12:00:00z"',
    '"0001-01-01T00:00:00+23:59"',
    '"0000-01-01T00:00:00Z"',
    '"0001-01-01T00:00:00Z"',
    '"2026-02-30T00:00:00Z"',
    '"9999-12-31T23:59:59-23:00"',
    '"2026-01-31T12:00:00+24:00"',
    '"pod"',
    '"candidates"',
]
FRAGMENTS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b'"',
    b"\\",
    b"\x00",
    b"\xff",
    b"\xc3\x28",
    b"null",
    b"1e999",
    b"\xef\xbb\xbf",
]
ONLY_PYTHON = ("duplicate field", "want RFC 3339", "want a year", "or the zero time", "there is a null")
"""What Go complains of where only Python takes a message."""

ONLY_GO = re.compile(
    r"Invalid enum value ''|got `null`|hex escape|utf-16 surrogate|was truncated"
    r"|missing required field `(count|delayMicroseconds|epoch|gracePeriodSeconds|maxCandidates|memberClass"
    r"|mustPlace|nodes|priority|revision|sequence|snapshotRevision|timeoutMilliseconds)`"
)
"""What Python complains of where only Go takes a message."""

DECODERS: dict[str, Callable[[bytes], object]] = {
    "plan-request": partial(codec.decode, PlanRequest),
    "plan-reply": partial(codec.decode, PlanReply),
    "order-envelope": codec.unwrap_order,
    "outcome-envelope": codec.unwrap_outcome,
    "decision-envelope": codec.unwrap_decision,
    "control-envelope": codec.unwrap,
}


def golden() -> list[tuple[str, bytes]]:
    paths = sorted([*GOLDEN.glob("*.json"), *(GOLDEN / "malformed").glob("*.json")])
    named = [(path.name.split(".")[0], path.read_bytes().removesuffix(b"\n")) for path in paths]
    return [(kind, data) for kind, data in named if kind in DECODERS]


class Raw:
    """A piece of JSON text in a document."""

    def __init__(self, text: str) -> None:
        self.text = text


def rendered(value: Any) -> str:
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{rendered(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(rendered, value)) + "]"
    return json.dumps(value)


def ways(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*prefix, key)
        yield from ways(inner, (*prefix, key))


def reshaped(data: bytes, source: random.Random) -> bytes:
    """A valid document with one thing in it changed, gone, twice or renamed."""
    document = json.loads(data)
    way = source.choice(list(ways(document)))
    inner = document
    for key in way[:-1]:
        inner = inner[key]
    how = source.choice(["junk", "junk", "junk", "gone", "twice", "case", "extra"])
    key = way[-1]
    if how == "junk" or not isinstance(inner, dict):
        inner[key] = Raw(source.choice(JUNK))
    elif how == "gone":
        del inner[key]
    elif how == "twice":
        inner[key] = Raw(f"{rendered(inner[key])},{json.dumps(key)}:{source.choice(JUNK)}")
    elif how == "case":
        inner[key.swapcase()] = inner.pop(key)
    else:
        inner["unknown"] = Raw(source.choice(JUNK))
    return rendered(document).encode()


def damaged(data: bytes, source: random.Random) -> bytes:
    """The bytes with a few of them changed, cut out or put in."""
    content = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(content) + 1)
        match source.randrange(4):
            case 0:
                content[at:at] = source.choice(FRAGMENTS)
            case 1:
                del content[at : at + source.randint(1, 20)]
            case 2:
                content[at : at + 1] = bytes([source.randrange(256)])
            case _:
                content[at:at] = content[: source.randint(0, 50)]
    return bytes(content)


def corpus() -> list[tuple[str, bytes]]:
    source = random.Random(SEED)
    seeds = golden()
    valid = [(kind, data) for kind, data in seeds if is_json(data)]
    found = list(seeds)
    while len(found) < COUNT:
        if source.random() < 0.7:
            kind, data = source.choice(valid)
            found.append((kind, reshaped(data, source)))
        else:
            kind, data = source.choice(seeds)
            found.append((kind, damaged(data, source)))
    return found


def is_json(data: bytes) -> bool:
    try:
        document = json.loads(data)
    except ValueError:
        return False
    return isinstance(document, dict) and bool(document)


def verdict(kind: str, data: bytes) -> str:
    """Decode, encode, decode, encode: why it was refused, or `ok` where both times gave the same."""
    try:
        message = DECODERS[kind](data)
    except Malformed as error:
        return f"{error.reason} {error.detail}"
    first = again(kind, message)
    assert again(kind, DECODERS[kind](first)) == first, (kind, data)
    return "ok"


def again(kind: str, message: Any) -> bytes:
    if isinstance(message, tuple):
        envelope, content = message
        assert isinstance(envelope, Envelope)
        return codec.wrap(content, envelope.source, at=envelope.time)
    assert isinstance(message, Message)
    return codec.wrap(message, "makeway/a/b") if kind.endswith("-envelope") else codec.encode(message)  # type: ignore[arg-type]


def test_any_damage_is_a_message_or_malformed_within_bounded_time() -> None:
    slowest = 0.0
    for kind, data in corpus():
        started = time.perf_counter()
        verdict(kind, data)
        slowest = max(slowest, time.perf_counter() - started)

    assert slowest < 1


@needs_go
def test_go_and_python_agree_on_what_is_a_message(tmp_path: Path) -> None:
    cases = [case for case in corpus() if case[0] != "decision-envelope"]  # the scheduler reads none
    file = tmp_path / "corpus"
    file.write_text("".join(f"{kind} {data.hex()}\n" for kind, data in cases))

    go_test("-run=TestVerdictsOnACorpus", "./wire", MAKEWAY_CORPUS=str(file))

    go = (tmp_path / "corpus.verdicts").read_text().splitlines()
    python = [verdict(kind, data) for kind, data in cases]
    assert len(go) == len(cases)
    only_go = [
        (*case, p)
        for case, g, p in zip(cases, go, python, strict=True)
        if g == "ok" != p and not ONLY_GO.search(p)
    ]
    only_python = [
        (*case, g)
        for case, g, p in zip(cases, go, python, strict=True)
        if p == "ok" != g and not any(allowed in g for allowed in ONLY_PYTHON)
    ]
    assert only_go[:3] == []
    assert only_python[:3] == []
    assert python.count("ok") > COUNT / 20
