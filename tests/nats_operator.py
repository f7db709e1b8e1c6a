"""Identities of NATS for tests: nkeys, and an operator with an account whose users are known by their JWTs.

The forms are those of github.com/nats-io/nkeys and github.com/nats-io/jwt (version 2).
"""

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

Kind = Literal["operator", "account", "user"]

_PREFIXES: dict[Kind, int] = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
_SEED = 18 << 3


class Identity:
    """One key: its seed, its public key, and what it signs."""

    def __init__(self, kind: Kind) -> None:
        self._key = Ed25519PrivateKey.generate()
        prefix = _PREFIXES[kind]
        private = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.seed = _encoded(bytes([_SEED | prefix >> 5, (prefix & 31) << 3]) + private)
        self.public = _encoded(bytes([prefix]) + public)

    def claims(self, subject: str, name: str, nats: Mapping[str, Any]) -> str:
        """Return a JWT about a subject, issued and signed by this identity."""
        body = {"iat": int(time.time()), "iss": self.public, "name": name, "sub": subject, "nats": nats}
        digest = hashlib.new("sha512_256", json.dumps(body).encode()).digest()
        body["jti"] = base64.b32encode(digest).decode().rstrip("=")
        parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, body)
        text = ".".join(_url(json.dumps(part).encode()) for part in parts)
        return f"{text}.{_url(self._key.sign(text.encode()))}"


class Operator:
    """An operator with an account for makeway, which has JetStream, and one that the server needs."""

    def __init__(self) -> None:
        self._operator, self._account, self._system = (
            Identity("operator"),
            Identity("account"),
            Identity("account"),
        )

    def configuration(self) -> str:
        """Return the lines of nats-server's configuration that make it this operator's."""
        itself = {"type": "operator", "version": 2, "system_account": self._system.public}
        operator = self._operator.claims(self._operator.public, "operator", itself)
        accounts = {
            self._account.public: self._claims_of(self._account, "makeway", jetstream=-1),
            self._system.public: self._claims_of(self._system, "SYS", jetstream=0),
        }
        preloaded = "\n".join(f"  {public}: {jwt}" for public, jwt in accounts.items())
        return f"operator: {operator}\nresolver: MEMORY\nresolver_preload: {{\n{preloaded}\n}}\n"

    def _claims_of(self, account: Identity, name: str, *, jetstream: int) -> str:
        most = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        stored = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), jetstream)
        limits = {**most, **stored, "wildcards": True}
        return self._operator.claims(
            account.public, name, {"type": "account", "version": 2, "limits": limits}
        )

    def credentials(self, name: str, permissions: Mapping[str, Any] | None = None) -> str:
        """Return the credentials file of a new user.

        permissions: `pub`, `sub` and `resp` as in a user's JWT; None allows everything.
        """
        user = Identity("user")
        nats = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, **(permissions or {})}
        jwt = self._account.claims(user.public, name, nats)
        return (
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )


def _encoded(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
