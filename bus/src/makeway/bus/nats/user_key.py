"""How a client proves to NATS who it is with a key of its own: a credentials file, or the seed of an nkey.

nats-py 2.16 can read both, and is not asked to. In a file without a JWT it looks for one for ever, in the
event loop; of a seed it reads the public key once, so that a renewed one is refused for good. Here a login is
read at each connection, so that a renewed file counts, and one that cannot be used is a failed attempt.

The forms are NATS's own: https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import nats.errors
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from makeway.bus.reasons import reason_of

_SEED_PREFIX: Final = 18 << 3
_USER_PREFIX: Final = 20 << 3
_SEED_BYTES: Final = 2 + 32 + 2
_MAX_BYTES: Final = 64 << 10
_SECTION: Final = re.compile(
    rb"-{3,}BEGIN (NATS USER JWT|USER NKEY SEED)-{3,}\s+([A-Za-z0-9._=-]+)\s+-{3,}END \1-{3,}"
)
"""A part of a credentials file, as `nsc` writes it."""


class LoginUnusable(nats.errors.Error):
    """The login cannot be read; its text says where it is and what is wrong."""


@dataclass(frozen=True)
class UserKey:
    """The key of a NATS user; with it the JWT that speaks for it, where accounts are an operator's."""

    key: Ed25519PrivateKey
    jwt: str = field(default="", repr=False)

    def public(self) -> str:
        """Return the public key as NATS writes it, `U…`."""
        raw = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return _encoded(bytes([_USER_PREFIX]) + raw)

    def sign(self, nonce: str) -> bytes:
        """Return the signature of what the server asks to be signed, in base 64."""
        return base64.b64encode(self.key.sign(nonce.encode()))


@dataclass(frozen=True)
class KeyLogin:
    """Where the key of a user is: asked at each connection.

    origin: a file or Secret, for errors. read: its bytes; raises OSError. parse: the key in them; raises
        ValueError.
    """

    origin: str
    read: Callable[[], bytes] = field(repr=False)
    parse: Callable[[bytes], UserKey]

    def key(self) -> UserKey:
        """Read the key.

        Raises:
            LoginUnusable: it cannot be read, or is not in its form.
        """
        try:
            return self.parse(self.read())
        except (OSError, ValueError) as error:
            raise LoginUnusable(
                f"the NATS login of {self.origin} cannot be used: {reason_of(error)}"
            ) from error


def credentials_file(path: Path) -> KeyLogin:
    """Return the login of a credentials file (.creds)."""
    return KeyLogin(str(path), lambda: _read(path), parse_credentials)


def seed_file(path: Path) -> KeyLogin:
    """Return the login of a file with the seed of an nkey."""
    return KeyLogin(str(path), lambda: _read(path), parse_seed)


def key_login(creds: Path | None, nkey: Path | None) -> KeyLogin | None:
    """Return the login of the one file that is given; None without one.

    Raises:
        ValueError: both are given.
    """
    if creds and nkey:
        raise ValueError("--nats-creds and --nats-nkey are two logins: give one")
    if creds:
        return credentials_file(creds)
    return seed_file(nkey) if nkey else None


def parse_credentials(text: bytes) -> UserKey:
    """Return the key and the JWT of a credentials file.

    Raises:
        ValueError: one of them is missing, or is not in its form.
    """
    parts = dict(_SECTION.findall(text))
    for name in (b"NATS USER JWT", b"USER NKEY SEED"):
        if name not in parts:
            raise ValueError(f"it has no {name.decode()}, as a credentials file has")
    return UserKey(parse_seed(parts[b"USER NKEY SEED"]).key, parts[b"NATS USER JWT"].decode())


def parse_seed(text: bytes) -> UserKey:
    """Return the key that a seed, `SU…`, stands for.

    Raises:
        ValueError: it is none, of something other than a user, or not all of it.
    """
    seed = text.strip()
    try:
        raw = base64.b32decode(seed + b"=" * (-len(seed) % 8))
    except binascii.Error as error:
        raise ValueError("it is not the seed of an nkey") from error
    if len(raw) != _SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("it is not the seed of an nkey, or not all of it")
    if raw[0] & 0xF8 != _SEED_PREFIX or ((raw[0] & 7) << 5 | raw[1] >> 3) != _USER_PREFIX:
        raise ValueError("it is not the seed of a user: those begin with SU")
    return UserKey(Ed25519PrivateKey.from_private_bytes(raw[2:-2]))


def _encoded(raw: bytes) -> str:
    checked = raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_BYTES)
