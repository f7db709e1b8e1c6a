"""What the Secrets of an installation hold: what is there is kept, what is missing is made. Without I/O.

The chart's NATS knows each login by a password and by a certificate. Passwords are kept twice, with the login
and in the Secret that NATS reads, so that either is made again as it was.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.cli.keys.stores import CONFIGMAP, SECRETS, by_key_id
from makeway.runtime.authority import Authority, Pair

Data: TypeAlias = dict[str, str]
"""What a Secret or a ConfigMap holds, decoded."""

AUTHORITY: Final = "makeway-nats-authority"
SERVER: Final = "makeway-nats-server"
PASSWORDS: Final = "makeway-nats-passwords"
PASSWORDS_FILE: Final = "passwords.conf"
SERVICE: Final = "makeway-nats"
PORT: Final = 4222

_CERTIFICATE: Final = ("ca.crt", "tls.crt", "tls.key")
_LINE: Final = re.compile(r'(\w+): "(\w+)"')


@dataclass(frozen=True)
class WantedSecrets:
    """What is to be there.

    users: logins of the chart's NATS; none where it runs none. certificate_days: how long certificates are
    valid; 0: none are made. signs: kinds of messages whose keys are made.
    """

    namespace: str
    users: tuple[str, ...] = ()
    certificate_days: int = 0
    signs: tuple[SigningKind, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the Secrets."""
        names = [login(user) for user in self.users]
        names += [PASSWORDS] if self.users else []
        names += [SERVER, AUTHORITY] if self.users and self.certificate_days else []
        return (*names, *dict.fromkeys(SECRETS[kind] for kind in self.signs))


@dataclass(frozen=True)
class SecretContents:
    """Secrets by name, and the public keys as their ConfigMap has them."""

    secrets: Mapping[str, Data] = field(default_factory=dict)
    public: Data = field(default_factory=dict)


def login(user: str) -> str:
    """Return the name of a login's Secret."""
    return f"makeway-nats-{user}"


def contents(wanted: WantedSecrets, found: SecretContents, now: datetime) -> SecretContents:
    """Return all that is wanted: as it is found, with what is missing.

    Raises:
        ValueError: what is there cannot be read; nothing is made in its place.
    """
    made = {name: dict(found.secrets.get(name, {})) for name in wanted.names}
    for user, password in _passwords(wanted, found):
        made[login(user)] |= {
            "user": user,
            "password": password,
            "url": f"nats://{user}:{password}@{SERVICE}.{wanted.namespace}.svc:{PORT}",
        }
    if wanted.users:
        lines = [f'{_variable(user)}: "{made[login(user)]["password"]}"\n' for user in wanted.users]
        made[PASSWORDS] = {PASSWORDS_FILE: "".join(lines)}
        if wanted.certificate_days:
            _add_certificates(wanted, made, now)
    public = found.public
    for kind in wanted.signs:
        public = _add_key(kind, made[SECRETS[kind]], public)
    return SecretContents(made, public)


def _passwords(wanted: WantedSecrets, found: SecretContents) -> Iterator[tuple[str, str]]:
    known = dict(_LINE.findall(found.secrets.get(PASSWORDS, {}).get(PASSWORDS_FILE, "")))
    for user in wanted.users:
        kept = found.secrets.get(login(user), {}).get("password") or known.get(_variable(user))
        # Begins with a letter: NATS would read digits as a number.
        yield user, kept or f"p{secrets.token_hex(16)}"


def _variable(user: str) -> str:
    """How the configuration of NATS knows a user's password."""
    return f"{user.upper().replace('-', '_')}_PASSWORD"


def _add_certificates(wanted: WantedSecrets, made: dict[str, Data], now: datetime) -> None:
    """Issue what is missing; all of it anew where the authority's key is not there to issue some."""
    holders = {SERVER: _hosts(wanted.namespace), **{login(user): () for user in wanted.users}}
    authorities = {made[name].get("ca.crt", "") for name in holders}
    missing = [name for name in holders if not set(_CERTIFICATE) <= set(made[name])]
    if len(authorities) > 1:
        current = made[AUTHORITY].get("tls.crt")
        missing = [name for name in holders if name in missing or made[name]["ca.crt"] != current]
    if not missing:
        return
    valid = timedelta(days=wanted.certificate_days)
    if set(made[AUTHORITY]) >= {"tls.crt", "tls.key"}:
        kept = Pair(made[AUTHORITY]["tls.crt"].encode(), made[AUTHORITY]["tls.key"].encode())
        with named(AUTHORITY):
            authority = Authority(kept)
    else:
        authority, missing = Authority.new(SERVICE, now, valid), list(holders)
    own = authority.pair
    made[AUTHORITY] = {"tls.crt": own.certificate.decode(), "tls.key": own.key.decode()}
    for name in missing:
        pair = authority.issue(name, now, valid, hosts=holders[name])
        issued = (own.certificate, pair.certificate, pair.key)
        made[name] |= {key: value.decode() for key, value in zip(_CERTIFICATE, issued, strict=True)}


def _hosts(namespace: str) -> tuple[str, ...]:
    host = f"{SERVICE}.{namespace}"
    return (SERVICE, host, f"{host}.svc", "localhost", "127.0.0.1")


def _add_key(kind: SigningKind, private: Data, public: Data) -> Data:
    """Make a kind's key where there is none, and return the public keys with that of the key in use."""
    name = f"{kind}.pem"
    ids = by_key_id(public, f"ConfigMap {CONFIGMAP}")[kind]
    if name in private:
        with named(f"{SECRETS[kind]}: {name}"):
            key = SigningKey.from_pem(private[name].encode())
        if key.key_id in ids:
            return public
    else:
        key = SigningKey.new()
        private[name] = key.to_pem().decode()
    return {**public, name: key.public_pem()}


@contextmanager
def named(secret: str) -> Iterator[None]:
    """Say of what cannot be read which Secret holds it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"Secret {secret}: {error}") from error
