"""The certificates of one cluster: an authority, serving and client certificates, the token-signing key.

Keys are readable by their owner only.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from makeway.runtime import authority

_VALID = timedelta(days=365)
_SERVING_HOSTS = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_SERVING_ADDRESSES = ("127.0.0.1", "10.96.0.1")


@dataclass(frozen=True)
class KeyPair:
    """Where a certificate and its private key lie."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of its own for each cluster, in one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._authority = authority.Authority.new("makeway-dev", datetime.now(UTC), _VALID)
        self.certificate = directory / "ca.pem"
        """The authority's own certificate."""
        self.certificate.write_bytes(self._authority.pair.certificate)

    def serving(self, name: str, *dns_names: str) -> KeyPair:
        """Issue a certificate for a server on 127.0.0.1, that is also known by some names."""
        hosts = (*_SERVING_HOSTS, *dns_names, *_SERVING_ADDRESSES)
        return self._write(name, self._authority.issue(name, datetime.now(UTC), _VALID, hosts=hosts))

    def client(self, user: str, group: str = "") -> KeyPair:
        """Issue a certificate that the API server takes for this user and group."""
        issued = self._authority.issue(user, datetime.now(UTC), _VALID, group=group)
        return self._write(user.replace(":", "-"), issued)

    def signing_key(self, name: str) -> Path:
        """Make a bare private key, as service account tokens are signed with."""
        return self._write_key(name, authority.private_pem(ec.generate_private_key(ec.SECP256R1())))

    def _write(self, name: str, pair: authority.Pair) -> KeyPair:
        path = self._directory / f"{name}.pem"
        path.write_bytes(pair.certificate)
        return KeyPair(path, self._write_key(name, pair.key))

    def _write_key(self, name: str, key: bytes) -> Path:
        path = self._directory / f"{name}.key"
        path.touch(mode=0o600)
        path.write_bytes(key)
        return path
