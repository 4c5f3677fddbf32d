"""The server's certificate: an authority of its own, kept in a Secret that all replicas share.

Replicas race to make and renew it; the API server lets one win, and the others take what it made. Renewing the
certificate leaves the authority as it is, so whoever trusts it notices nothing; a new authority is published together
with the one before, until that expires.
"""

import base64
import binascii
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tandem.api.wire import Object
from tandem.errors import TandemError

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 365
RENEW_AFTER = 2 / 3
"""Share of its life after which a certificate is renewed."""
CLOCK_SKEW = timedelta(hours=1)
CA, CA_KEY, CERT, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


class CertificateError(TandemError):
    """A certificate cannot be used; the message says which and what to do."""


@dataclass(frozen=True)
class Certificate:
    """What the Secret holds, PEM."""

    authorities: bytes
    """Who is to be trusted: the issuer first."""
    chain: bytes
    key: bytes
    authority_key: bytes = b""
    """Empty where somebody else is the authority."""

    @classmethod
    def parse(cls, secret: Object) -> "Certificate":
        """Read a Secret of type kubernetes.io/tls.

        Raises:
            CertificateError: it holds no usable certificate.
        """
        name = secret["metadata"]["name"]
        try:
            data = {key: base64.b64decode(value, validate=True) for key, value in (secret.get("data") or {}).items()}
            made = cls(data.get(CA, b""), data[CERT], data[KEY], data.get(CA_KEY, b""))
            x509.load_pem_x509_certificates(made.chain)
            serialization.load_pem_private_key(made.key, None)
            if made.authority_key:  # `renewed` issues with it
                x509.load_pem_x509_certificates(made.authorities)
                serialization.load_pem_private_key(made.authority_key, None)
        except (KeyError, ValueError, TypeError, binascii.Error) as error:
            raise CertificateError(
                f"Secret {name} holds no certificate ({error}): delete it, and it is made again; or, where"
                " manageCertificate is off, have its owner write tls.crt and tls.key"
            ) from error
        return made

    def data(self) -> dict[str, str]:
        """`data` of the Secret."""
        parts = {CA: self.authorities, CA_KEY: self.authority_key, CERT: self.chain, KEY: self.key}
        return {name: base64.b64encode(text).decode() for name, text in parts.items() if text}

    @property
    def expires_at(self) -> datetime:
        """When the certificate ends."""
        return x509.load_pem_x509_certificates(self.chain)[0].not_valid_after_utc

    def context(self, clients: str) -> ssl.SSLContext:
        """TLS of a server that asks for client certificates of the authorities `clients` (PEM; may be empty).

        Raises:
            CertificateError: certificate and key, or `clients`, cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            with tempfile.TemporaryDirectory() as folder:  # OpenSSL takes keys from files alone
                pair = Path(folder) / "pair.pem"
                pair.touch(mode=0o600)
                pair.write_bytes(self.key + b"\n" + self.chain)
                context.load_cert_chain(pair)
            if clients:
                context.load_verify_locations(cadata=clients)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"certificate or client authorities cannot be used: {error}") from error
        return context


def renewed(held: Certificate | None, names: Sequence[str], now: datetime) -> Certificate | None:
    """The certificate that should take the place of `held`; None while that one is good for `names`."""
    if held is None or not held.authority_key:
        authority, key = _new_authority(now)
        return _issued(authority, key, pem(authority), names, now)
    issuer = x509.load_pem_x509_certificates(held.authorities)[0]
    key = _private_key(held.authority_key)
    if _is_old(issuer, now):
        authority, key = _new_authority(now)
        return _issued(authority, key, pem(authority) + pem(issuer), names, now)
    certificate = x509.load_pem_x509_certificates(held.chain)[0]
    if _is_old(certificate, now) or _names_of(certificate) != set(names):
        return _issued(issuer, key, held.authorities, names, now)
    return None


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def secret(name: str, namespace: str, made: Certificate, labels: Mapping[str, str], before: Object | None) -> Object:
    """The Secret to create, or to put in the place of `before`."""
    metadata = before["metadata"] if before else {"name": name, "namespace": namespace, "labels": dict(labels)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "kubernetes.io/tls",
        "data": made.data(),
    }


def _is_old(certificate: x509.Certificate, now: datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now >= certificate.not_valid_before_utc + life * RENEW_AFTER


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return set(found.get_values_for_type(x509.DNSName))


def _private_key(text: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(text, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("ca.key of the Secret is not Tandem's own: delete the Secret, and it is made again")
    return key


def _new_authority(now: datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tandem-metrics-{now:%Y%m%d%H%M%S}")])
    builder = _builder(name, name, key.public_key(), now, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(_usage(signs=True), critical=True).sign(key, hashes.SHA256()), key


def _issued(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    authorities: bytes,
    names: Sequence[str],
    now: datetime,
) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = _builder(subject, authority.subject, key.public_key(), now, CERTIFICATE_DAYS)
    hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(hosts, critical=False).add_extension(issuer, critical=False)
    server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(server, critical=False).add_extension(_usage(signs=False), critical=True)
    certificate = builder.sign(authority_key, hashes.SHA256())
    return Certificate(authorities, pem(certificate), _key_pem(key), _key_pem(authority_key))


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _usage(*, signs: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    never = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=signs, crl_sign=signs, **never)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)


def utc_now() -> datetime:
    """Now, with its zone."""
    return datetime.now(UTC)
