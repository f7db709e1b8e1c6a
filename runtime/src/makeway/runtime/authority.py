"""A certificate authority and what it issues, in PEM. No file, no clock.

Every key is ECDSA P-256, which costs a millisecond where RSA costs a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BEFORE: Final = timedelta(hours=1)
"""Valid so long before it is made, for clocks that are behind."""

_AHEAD: Final = timedelta(days=1)
"""No clock that is trusted is ahead of another by so much."""

_SIGNS_CERTIFICATES: Final = x509.KeyUsage(
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
class Pair:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Issues certificates. `pair`: its own, which may be kept and given to the next one."""

    def __init__(self, pair: Pair) -> None:
        """Take an authority up again.

        Raises:
            ValueError: it is no certificate with its ECDSA key.
        """
        self.pair = pair
        self._certificate, key = _read(pair)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("an authority's key is ECDSA")
        self._key = key

    @classmethod
    def new(cls, name: str, now: datetime, valid: timedelta) -> Self:
        """Make an authority; `name` is its common name."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return cls._signed(subject, ec.generate_private_key(ec.SECP256R1()), now, valid)

    def renewed(self, now: datetime, valid: timedelta) -> Self:
        """Return the same authority with a later end: what either has issued verifies with both."""
        return self._signed(self._certificate.subject, self._key, now, valid)

    @classmethod
    def _signed(
        cls, subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, valid: timedelta
    ) -> Self:
        builder = (
            _builder(subject, subject, key.public_key(), now, valid)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        return cls(Pair(_pem(builder.sign(key, hashes.SHA256())), private_pem(key)))

    def issue(
        self, name: str, now: datetime, valid: timedelta, *, group: str = "", hosts: Sequence[str] = ()
    ) -> Pair:
        """Issue a certificate: for a server of these names and addresses, or without any for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        attributes += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
        usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(x509.Name(attributes), self._certificate.subject, key.public_key(), now, valid)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(one) for one in hosts])
            builder = builder.add_extension(names, critical=False)
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), private_pem(key))


def is_due(pair: Pair, now: datetime) -> bool:
    """Report whether a certificate is to be renewed: two thirds of its life are over.

    Or it begins later than tomorrow, since it was issued by a clock that was ahead.

    Raises:
        ValueError: it is no certificate with its key.
    """
    certificate, _ = _read(pair)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return not begin - _AHEAD <= now < begin + (end - begin) * 2 / 3


def _read(pair: Pair) -> tuple[x509.Certificate, PrivateKeyTypes]:
    """Read a certificate and its key. Raises ValueError."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, None, unsafe_skip_rsa_key_validation=True)
        of_it = certificate.public_key() == key.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError(f"no certificate with an unencrypted key, in PEM: {error}") from error
    if not of_it:
        raise ValueError("the key is not the certificate's")
    return certificate, key


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as OpenSSL writes it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, valid: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + valid)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
