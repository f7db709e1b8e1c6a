"""Signatures of orders, outcomes and control states, where others may publish on the same NATS.

Ed25519 (RFC 8032) over `makeway/<kind>/v1`, a zero byte, the NATS subject, a zero byte and the exact bytes
of the envelope's `data`. The kind keeps a signature from counting for a message of another kind, the subject
from counting elsewhere. The envelope's other attributes are not signed: no part acts on them. The Go side is
`plugin/wire/signing.go`; the table in `bus/testdata/signatures` holds the two together.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from makeway.bus.envelope import Envelope
from makeway.bus.errors import SignatureFailure

MAX_PUBLIC_KEYS: Final = 2
"""Of one kind: the one in use, and its predecessor or successor during a rotation."""

_END: Final = "-----END PUBLIC KEY-----"


class SigningKind(StrEnum):
    """What a key signs. Each kind has keys of its own."""

    ORDER = "order"
    CONTROL = "control"
    OUTCOME = "outcome"


@dataclass(frozen=True)
class SigningKey:
    """A private key. `key_id`: of its public key, see `key_id`."""

    private: Ed25519PrivateKey = field(repr=False)
    key_id: str

    @classmethod
    def from_pem(cls, pem: bytes) -> SigningKey:
        """Read an unencrypted PKCS #8 key in PEM.

        Raises:
            ValueError: it is none, or of another algorithm.
        """
        try:
            private = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ValueError(f"not an unencrypted private key in PEM: {error}") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"not an Ed25519 key: {type(private).__name__}")
        return cls(private, key_id(private.public_key()))

    @classmethod
    def new(cls) -> SigningKey:
        """Return a new key."""
        private = Ed25519PrivateKey.generate()
        return cls(private, key_id(private.public_key()))

    def to_pem(self) -> bytes:
        """Return it as `from_pem` reads it."""
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def public_pem(self) -> str:
        """Return its public key, in PEM."""
        public = self.private.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")

    def sign(self, envelope: Envelope, kind: SigningKind, subject: str) -> Envelope:
        """Return the envelope with `keyid` and `signature`."""
        signature = self.private.sign(signed_bytes(kind, subject, bytes(envelope.data)))
        return msgspec.structs.replace(
            envelope, keyid=self.key_id, signature=b64encode(signature).decode("ascii")
        )


@dataclass(frozen=True)
class PublicKeys:
    """The public keys that count, by kind and key id."""

    by_kind: Mapping[SigningKind, Mapping[str, Ed25519PublicKey]] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Mapping[str, str]) -> PublicKeys:
        """Read a ConfigMap's data: under the name of each kind, such as `order.pem`, one or two keys in PEM.

        Raises:
            ValueError: an entry that is no key, or too many of them; names the entry.
        """
        return cls({kind: _public_keys(f"{kind}.pem", data.get(f"{kind}.pem", "")) for kind in SigningKind})

    def ids(self) -> dict[str, list[str]]:
        """Return the key ids by kind."""
        return {str(kind): sorted(keys) for kind, keys in self.by_kind.items()}

    def verify(self, envelope: Envelope, kind: SigningKind, subject: str) -> SignatureFailure | None:
        """Return why the envelope's signature is none of this kind on this subject; None where it is one."""
        if not envelope.signature or not envelope.keyid:
            return "unsigned"
        key = self.by_kind.get(kind, {}).get(envelope.keyid)
        if key is None:
            return "unknown-key"
        try:
            signature = b64decode(envelope.signature, validate=True)
            key.verify(signature, signed_bytes(kind, subject, bytes(envelope.data)))
        except (Base64Error, ValueError, InvalidSignature):
            return "invalid-signature"
        return None


def signed_bytes(kind: SigningKind, subject: str, data: bytes) -> bytes:
    """Return what is signed."""
    return b"\0".join((f"makeway/{kind}/v1".encode(), subject.encode(), data))


def key_id(public: Ed25519PublicKey) -> str:
    """Return a public key's name: the first 16 hexadecimal digits of the SHA-256 of its 32 bytes."""
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()[:16]


def _public_keys(name: str, text: str) -> dict[str, Ed25519PublicKey]:
    blocks = [f"{block.strip()}\n{_END}\n" for block in text.split(_END) if block.strip()]
    if len(blocks) > MAX_PUBLIC_KEYS:
        raise ValueError(f"{name}: {len(blocks)} keys, at most {MAX_PUBLIC_KEYS}")
    keys = {}
    for block in blocks:
        try:
            public = load_pem_public_key(block.encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ValueError(f"{name}: not a public key in PEM: {error}") from error
        if not isinstance(public, Ed25519PublicKey):
            raise ValueError(f"{name}: not an Ed25519 key: {type(public).__name__}")
        keys[key_id(public)] = public
    return keys
