"""Certificates of our own: a CA, and what it signs, for webhooks, the embedded API server and tests.

Elliptic curve P-256 throughout: keys are made in a millisecond and everybody reads them.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks of other machines may be behind ours.
BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its private key, as PEM text."""

    certificate: str
    key: str = field(repr=False)


def make_ca(common_name: str, *, now: datetime, lifetime: timedelta = timedelta(days=3650)) -> KeyPair:
    """Return a new self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    builder = _builder(name, name, key.public_key(), now=now, lifetime=lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(
    ca: KeyPair,
    common_name: str,
    *,
    now: datetime,
    dns_names: Sequence[str] = (),
    addresses: Sequence[str] = (),
    groups: Sequence[str] = (),
    client: bool = False,
    lifetime: timedelta = timedelta(days=365),
) -> KeyPair:
    """Return a certificate signed by `ca`: of a server with these names, or of a client in these groups."""
    authority = x509.load_pem_x509_certificate(ca.certificate.encode())
    signer = serialization.load_pem_private_key(ca.key.encode(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of the CA is of a kind that this module does not make")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(authority.subject, _name(common_name, groups), key.public_key(), now=now, lifetime=lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs=False), critical=True)
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(each) for each in dns_names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def expiry(pem: str) -> datetime:
    """Return when the first certificate of a PEM text ceases to be valid."""
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc


def as_der(pem: str) -> bytes:
    """Return the first certificate of a PEM text as it is shown in a handshake; ValueError if there is none."""
    return x509.load_pem_x509_certificate(pem.encode()).public_bytes(serialization.Encoding.DER)


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )
