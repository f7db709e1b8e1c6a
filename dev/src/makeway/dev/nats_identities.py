"""Who is who on a NATS that lets in known clients alone: an authority, certificates and nkeys."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import nkeys  # type: ignore[import-untyped] # it has no types

from makeway.dev.pki import Authority, KeyPair

DEVELOPER: Final = "developer"
"""Who gives no login: tests and people, who may do everything that the parts may not."""

_SEED_BYTES: Final = 32


@dataclass(frozen=True)
class NatsIdentity:
    """What one login verifies NATS by, shows of itself and signs with. `public`: the nkey that NATS knows."""

    authority: Path
    client: KeyPair
    seed: Path
    public: str

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a connection."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.client.certificate, self.client.key)
        return context

    def options(self) -> tuple[str, ...]:
        """Return the options of a command or a service."""
        return (
            f"--nats-tls-ca={self.authority}",
            f"--nats-tls-cert={self.client.certificate}",
            f"--nats-tls-key={self.client.key}",
            f"--nats-nkey={self.seed}",
        )

    def arguments(self) -> dict[str, object]:
        """Return the arguments of the scheduler's plugin."""
        tls = {
            "caFile": str(self.authority),
            "certFile": str(self.client.certificate),
            "keyFile": str(self.client.key),
        }
        return {"tls": tls, "nkeySeedFile": str(self.seed)}


@dataclass(frozen=True)
class NatsIdentities:
    """The identities of a cluster. `server`: what NATS presents, for 127.0.0.1 and localhost."""

    authority: Path
    server: KeyPair
    logins: Mapping[str, NatsIdentity]


def make(directory: Path, logins: Iterable[str]) -> NatsIdentities:
    """Issue certificates of a new authority, and write a seed for each login and the developer."""
    authority = Authority(directory)
    return NatsIdentities(
        authority.certificate,
        authority.serving("nats"),
        {login: _identity(directory, authority, login) for login in (*logins, DEVELOPER)},
    )


def _identity(directory: Path, authority: Authority, login: str) -> NatsIdentity:
    seed = nkeys.encode_seed(secrets.token_bytes(_SEED_BYTES), nkeys.PREFIX_BYTE_USER)
    file = directory / f"{login}.nk"
    file.touch(mode=0o600)
    file.write_bytes(seed)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    return NatsIdentity(authority.certificate, authority.client(login), file, public)
