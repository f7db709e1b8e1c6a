"""The certificates of one cluster: an authority, serving and client certificates, the token-signing key.

Every key is ECDSA P-256, which costs a millisecond where RSA costs a second. Keys are readable by their owner
only.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=365)
_SERVING_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_SERVING_ADDRESSES = ("127.0.0.1", "10.96.0.1")
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


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
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "makeway-dev")])
        builder = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
        self.certificate = directory / "ca.pem"
        """The authority's own certificate."""
        self.certificate.write_bytes(
            builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def serving(self, name: str, *dns_names: str) -> KeyPair:
        """Issue a certificate for a server on 127.0.0.1, that is also known by some names."""
        addresses = (x509.IPAddress(ipaddress.ip_address(address)) for address in _SERVING_ADDRESSES)
        names = x509.SubjectAlternativeName([*map(x509.DNSName, (*_SERVING_NAMES, *dns_names)), *addresses])
        return self._issue(name, [x509.NameAttribute(NameOID.COMMON_NAME, name)], names)

    def client(self, user: str, group: str = "") -> KeyPair:
        """Issue a certificate that the API server takes for this user and group."""
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        return self._issue(user.replace(":", "-"), attributes, None)

    def signing_key(self, name: str) -> Path:
        """Make a bare private key, as service account tokens are signed with."""
        return self._write_key(name, ec.generate_private_key(ec.SECP256R1()))

    def _issue(
        self, name: str, attributes: list[x509.NameAttribute[str]], names: x509.SubjectAlternativeName | None
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if names is None else ExtendedKeyUsageOID.SERVER_AUTH
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            self._builder(x509.Name(attributes), key.public_key())
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        path = self._directory / f"{name}.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return KeyPair(path, self._write_key(name, key))

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _VALID)
        )

    def _write_key(self, name: str, key: ec.EllipticCurvePrivateKey) -> Path:
        path = self._directory / f"{name}.key"
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return path
