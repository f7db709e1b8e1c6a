"""Signatures, by the table that Go's tests read too (`bus/testdata/signatures`)."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from makeway.bus.codec import encode
from makeway.bus.envelope import Envelope
from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind, key_id
from makeway.dev.paths import CHECKOUT

TABLE = json.loads((CHECKOUT / "bus" / "testdata" / "signatures" / "cases.json").read_bytes())
CASES: list[dict[str, Any]] = TABLE["cases"]
FAILURES = {
    "valid": None,
    "missing": "unsigned",
    "unknown-key": "unknown-key",
    "invalid": "invalid-signature",
}
"""By the verdicts of the table."""


def envelope(data: str, **more: str) -> Envelope:
    return Envelope(
        specversion="1.0",
        id="ord-1",
        source="makeway/scheduler/a",
        type="dev.makeway.order.v1",
        time=datetime(2026, 1, 31, 12, tzinfo=UTC),
        datacontenttype="application/json",
        data=msgspec.Raw(data.encode()),
        **more,
    )


def signer(name: str) -> SigningKey:
    private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(TABLE["seeds"][name]))
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return SigningKey.from_pem(pem)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_signature_counts_for_its_kind_its_subject_and_its_bytes_alone(case: dict[str, Any]) -> None:
    keys = PublicKeys.parse(TABLE["publicKeys"])
    message = envelope(case["data"], keyid=case["keyid"], signature=case["signature"])

    failure = keys.verify(message, SigningKind(case["kind"]), case["subject"])

    assert failure == FAILURES[case["verdict"]]


@pytest.mark.parametrize("case", [case for case in CASES if case["verdict"] == "valid"])
def test_a_signature_is_the_same_in_both_languages(case: dict[str, Any]) -> None:
    signed = signer(case["signer"]).sign(envelope(case["data"]), SigningKind(case["kind"]), case["subject"])

    assert (signed.keyid, signed.signature) == (case["keyid"], case["signature"])


def test_a_signature_holds_after_its_envelope_was_written_and_read() -> None:
    (case,) = [case for case in CASES if case["name"] == "an order"]
    signed = signer(case["signer"]).sign(envelope(case["data"]), SigningKind.ORDER, case["subject"])

    read = msgspec.json.decode(encode(signed), type=Envelope)

    assert PublicKeys.parse(TABLE["publicKeys"]).verify(read, SigningKind.ORDER, case["subject"]) is None


def test_without_keys_no_signature_counts() -> None:
    case = CASES[0]
    message = envelope(case["data"], keyid=case["keyid"], signature=case["signature"])

    assert PublicKeys.parse({}).verify(message, SigningKind.ORDER, case["subject"]) == "unknown-key"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "order.pem: not a public key in PEM"),
        (TABLE["publicKeys"]["order.pem"] + TABLE["publicKeys"]["control.pem"], "4 keys, at most 2"),
        (
            generate_private_key(SECP256R1())
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            .decode(),
            "order.pem: not an Ed25519 key",
        ),
    ],
)
def test_public_keys_that_cannot_be_used_are_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PublicKeys.parse({"order.pem": text})


@pytest.mark.parametrize("text", [b"", b"nonsense", TABLE["publicKeys"]["order.pem"].encode()])
def test_a_private_key_that_cannot_be_used_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="private key in PEM"):
        SigningKey.from_pem(text)


def test_a_key_never_shows_in_what_is_printed_of_it() -> None:
    key = signer("order/new")

    assert key.key_id in repr(key)
    assert "private" not in repr(key)
    assert key_id(key.private.public_key()) == key.key_id
