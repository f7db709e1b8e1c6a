"""What the Secrets of an installation hold: what is there is kept, what is missing is made. Without I/O.

The chart's NATS knows each login by a password and by a certificate. Passwords are kept twice, with the login
and in the Secret that NATS reads, so that either is made again as it was. Certificates are issued anew when
two thirds of their life are over, the authority's own with the key that it has: what it issued before
verifies with both.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.cli.keys.stores import SECRETS, Data, by_key_id
from makeway.runtime.authority import Authority, Pair, is_due
from makeway.runtime.key_ring import CONFIGMAP

AUTHORITY: Final = "makeway-nats-authority"
SERVER: Final = "makeway-nats-server"
PASSWORDS: Final = "makeway-nats-passwords"
PASSWORDS_FILE: Final = "passwords.conf"
SERVICE: Final = "makeway-nats"
PORT: Final = 4222

_CERTIFICATE: Final = ("ca.crt", "tls.crt", "tls.key")
_LINE: Final = re.compile(r'^(\w+): "((?:[^"\\]|\\.)*)"$', re.MULTILINE)
_HASH: Final = re.compile(r"\$2[abxy]\$\d\d\$")


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
        """Names of the Secrets, in the order of being written: the authority, then what it issues."""
        names = [AUTHORITY, *self.issued] if self.users and self.certificate_days else []
        names += [*map(login, self.users), PASSWORDS] if self.users else []
        return tuple(dict.fromkeys((*names, *(SECRETS[kind] for kind in self.signs))))

    @property
    def issued(self) -> tuple[str, ...]:
        """Names of the Secrets with a certificate of the authority's."""
        return (SERVER, *map(login, self.users))


@dataclass(frozen=True)
class SecretContents:
    """Secrets by name, and the public keys as their ConfigMap has them.

    unreadable: by name, why a Secret or the ConfigMap cannot be read. It is left as it is. own: names of the
    Secrets that were found and that no chart has rendered.
    """

    secrets: Mapping[str, Data] = field(default_factory=dict)
    public: Data = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    own: frozenset[str] = frozenset()


def login(user: str) -> str:
    """Return the name of a login's Secret."""
    return f"makeway-nats-{user}"


def contents(wanted: WantedSecrets, found: SecretContents, now: datetime) -> SecretContents:
    """Return all that is wanted: as it is found, with what is missing, and what ends soon issued anew."""
    making = _Making(wanted, now, dict(found.public), dict(found.unreadable))
    making.secrets = {
        name: dict(found.secrets.get(name, {})) for name in wanted.names if name not in found.unreadable
    }
    if wanted.users:
        making.add_passwords()
        if wanted.certificate_days:
            making.add_certificates()
    if CONFIGMAP not in found.unreadable:
        making.add_keys()
    return SecretContents(making.secrets, making.public, making.unreadable)


def lost(wanted: WantedSecrets, found: SecretContents) -> set[str]:
    """Return the Secrets that are missing, and that were there by what others say. Pure.

    An older chart rendered logins and the server's certificate, but neither the passwords' Secret nor the
    authority's: only a login that was made here is evidence of these.
    """
    known, logins = _known_passwords(found.secrets), [login(user) for user in wanted.users]
    names = {login(user) for user in wanted.users if _variable(user) in known}
    names |= {SECRETS[kind] for kind in wanted.signs if f"{kind}.pem" in found.public}
    if all(name in found.secrets for name in logins):
        certified = [name for name in logins if "ca.crt" in found.secrets[name]]
        names |= {PASSWORDS} if found.own.intersection(logins) else set()
        names |= {AUTHORITY} if found.own.intersection(certified) else set()
        names |= {SERVER} if certified else set()
    return names.intersection(wanted.names) - set(found.secrets) - set(found.unreadable)


@dataclass
class _Making:
    """What is made so far. A Secret that cannot be read leaves `secrets`; what needs it is not made."""

    wanted: WantedSecrets
    now: datetime
    public: Data
    unreadable: dict[str, str]
    secrets: dict[str, Data] = field(default_factory=dict)

    def add_passwords(self) -> None:
        """Complete the logins, and the file by which NATS knows them."""
        known = _known_passwords(self.secrets)
        for user in self.wanted.users:
            # Of a login that cannot be read NATS has to know some password, or it would not start.
            known.setdefault(_variable(user), f"p{secrets.token_hex(16)}")
            with self._reading(login(user)) as data:
                password = _usable(data.get("password") or known[_variable(user)])
                known[_variable(user)] = password
                server = f"{SERVICE}.{self.wanted.namespace}.svc:{PORT}"
                url = f"nats://{user}:{quote(password, safe='')}@{server}"
                data |= {"user": user, "password": password, "url": url}
                if not self.wanted.certificate_days:
                    # Whoever reads the login would show them in place of your own.
                    for key in _CERTIFICATE:
                        data.pop(key, None)
        if PASSWORDS in self.secrets:
            names = map(_variable, self.wanted.users)
            lines = [f'{name}: "{_escaped(known[name])}"\n' for name in names]
            self.secrets[PASSWORDS] = {PASSWORDS_FILE: "".join(lines)}

    def add_certificates(self) -> None:
        """Issue what is missing or ends soon; all of it where the authority is another."""
        holders = [name for name in self.wanted.issued if name in self.secrets]
        due = [name for name in holders if self._is_due(name)]
        authority = self._authority(needed=bool(due))
        if authority is None:
            return
        own, valid = authority.pair, timedelta(days=self.wanted.certificate_days)
        self.secrets[AUTHORITY] |= {"tls.crt": own.certificate.decode(), "tls.key": own.key.decode()}
        for name in holders:
            data = self.secrets.get(name)
            if data is None or (name not in due and data["ca.crt"] == own.certificate.decode()):
                continue
            hosts = _hosts(self.wanted.namespace) if name == SERVER else ()
            pair = authority.issue(name, self.now, valid, hosts=hosts)
            issued = (own.certificate, pair.certificate, pair.key)
            data |= {key: value.decode() for key, value in zip(_CERTIFICATE, issued, strict=True)}

    def add_keys(self) -> None:
        """Make the key of each kind that has none, and publish what is signed with."""
        with self._reading(CONFIGMAP):
            ids = by_key_id(self.public, "public keys")
            for kind in self.wanted.signs:
                if SECRETS[kind] in self.secrets:
                    with self._reading(SECRETS[kind]) as data:
                        self._add_key(kind, data, ids[kind])

    def _add_key(self, kind: SigningKind, private: Data, ids: Container[str]) -> None:
        name = f"{kind}.pem"
        if name not in private:
            private[name] = SigningKey.new().to_pem().decode()
        key = SigningKey.from_pem(private[name].encode())
        if key.key_id not in ids:
            self.public[name] = key.public_pem()

    def _is_due(self, name: str) -> bool:
        """Report whether a certificate is missing, or is to be renewed."""
        data = self.secrets[name]
        if not set(_CERTIFICATE) <= set(data):
            return True
        with self._reading(name):
            return is_due(_pair(data), self.now)
        return False

    def _authority(self, *, needed: bool) -> Authority | None:
        """Return who issues; None where the authority cannot be read, or is not there and not needed."""
        if AUTHORITY not in self.secrets:
            return None
        valid = timedelta(days=self.wanted.certificate_days)
        with self._reading(AUTHORITY) as data:
            if not {"tls.crt", "tls.key"} <= set(data):
                return Authority.new(SERVICE, self.now, valid) if needed else None
            kept = Authority(_pair(data))
            return kept.renewed(self.now, valid) if is_due(kept.pair, self.now) else kept
        return None

    @contextmanager
    def _reading(self, name: str) -> Iterator[Data]:
        """Give what a Secret holds; where it cannot be read, note why and leave it out."""
        try:
            yield self.secrets.get(name, {})
        except ValueError as error:
            self.unreadable[name] = str(error)
            self.secrets.pop(name, None)


def _pair(data: Data) -> Pair:
    return Pair(data["tls.crt"].encode(), data["tls.key"].encode())


def _known_passwords(found: Mapping[str, Data]) -> Data:
    """Return the passwords by the names that NATS knows them by."""
    lines = _LINE.findall(found.get(PASSWORDS, {}).get(PASSWORDS_FILE, ""))
    return {name: re.sub(r"\\(.)", r"\1", text) for name, text in lines}


def _usable(password: str) -> str:
    """Return a password, which may be one that a person chose; raise ValueError where NATS cannot have it."""
    if not password.isprintable():
        raise ValueError("password: it has a line end or another character that is not printed")
    if _HASH.match(password):
        raise ValueError("password: NATS takes it for a bcrypt hash")
    return password


def _escaped(text: str) -> str:
    """Return a text as NATS' configuration has it between quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _variable(user: str) -> str:
    """How the configuration of NATS knows a user's password."""
    return f"{user.upper().replace('-', '_')}_PASSWORD"


def _hosts(namespace: str) -> tuple[str, ...]:
    host = f"{SERVICE}.{namespace}"
    return (SERVICE, host, f"{host}.svc", "localhost", "127.0.0.1")
