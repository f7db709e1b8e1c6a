"""The golden files, read and written by Python. `plugin/wire/golden_test.go` does the same in Go."""

from pathlib import Path

import msgspec
import pytest

from go_tests import go_test, needs_go
from makeway.bus import codec
from makeway.bus.control import ControlState
from makeway.bus.errors import Malformed
from makeway.bus.plan import PlanReply, PlanRequest
from makeway.dev.contract_reference import KINDS, generated
from makeway.dev.samples import MALFORMED

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "bus/testdata"
GOLDEN_FILES = sorted(GOLDEN.glob("*.json"))
MALFORMED_FILES = sorted((GOLDEN / "malformed").glob("*.json"))


def content(path: Path) -> bytes:
    return path.read_bytes().removesuffix(b"\n")


def decode(kind: str, data: bytes) -> object:
    if kind == "plan-request":
        return codec.decode(PlanRequest, data)
    if kind == "plan-reply":
        return codec.decode(PlanReply, data)
    if kind == "control-envelope":
        return codec.unwrap_as(data, ControlState)
    return codec.unwrap_order(data)


WRITTEN_BY_HAND = ("brake", "breaker", "pods", "queues", "ranking", "revisions", "rules", "signatures")
"""Folders of cases beside the golden files that hold Python and Go to one rule."""


def test_the_generated_files_are_up_to_date_and_nothing_else_lies_beside_them() -> None:
    expected = generated()
    found = {
        str(path.relative_to(ROOT))
        for folder in ("bus/testdata", "docs/reference/schemas")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.parent.name not in WRITTEN_BY_HAND
    }

    stale = [path for path, data in expected.items() if (ROOT / path).read_bytes() != data]

    assert stale == [], "run `make reference`"
    assert found <= set(expected)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.stem)
def test_python_reads_and_writes_every_message_byte_for_byte(path: Path) -> None:
    kind = path.name.split(".")[0]
    struct = KINDS["envelope" if kind.endswith("-envelope") else kind]

    message = msgspec.json.decode(content(path), type=struct)

    assert codec.encode(message) == content(path)


@pytest.mark.parametrize(
    "path", [p for p in GOLDEN_FILES if "-envelope" in p.name], ids=lambda path: path.stem
)
def test_python_reads_every_envelope_and_makes_the_same_again(path: Path) -> None:
    envelope, message = codec.unwrap(content(path))

    again = codec.wrap(message, envelope.source, at=envelope.time)

    unsigned = msgspec.structs.replace(envelope, signature="", keyid="")
    assert again == codec.encode(unsigned)


@pytest.mark.parametrize("path", MALFORMED_FILES, ids=lambda path: path.stem)
def test_python_refuses_every_malformed_message_for_the_reason_in_its_name(path: Path) -> None:
    kind, reason, _ = path.name.removesuffix(".json").split(".", 2)

    with pytest.raises(Malformed) as refused:
        decode(kind, content(path))

    assert refused.value.reason == reason, refused.value.detail


def test_every_reason_for_which_a_message_is_refused_has_a_case() -> None:
    reasons = {name.split(".")[1] for name in MALFORMED}

    # too-large has no file: it would be a megabyte.
    assert reasons == {"too-deep", "not-json", "invalid", "unknown-version", "unknown-type"}


@needs_go
def test_go_reads_and_writes_the_same_files() -> None:
    go_test("./wire")
