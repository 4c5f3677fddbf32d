"""Certificates of one cluster: a CA each for clients and servers, for aggregation, and for etcd.

The front proxy has a CA of its own: with one CA, any client certificate could speak for
any user through the ``X-Remote-User`` header.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cluster import files

VALID_FOR = datetime.timedelta(days=3650)


@dataclass(frozen=True)
class Authority:
    """A certificate authority whose certificate is in ``folder/<name>.crt``."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def path(self) -> Path:
        """The CA's certificate, PEM."""
        return self.folder / f"{self.name}.crt"


@dataclass(frozen=True)
class Identity:
    """Who a certificate speaks for: the user (common name), its groups, and names if it serves."""

    user: str
    groups: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """DNS names and IP addresses; none for a certificate that only clients use."""


def load_authority(folder: Path, name: str) -> Authority:
    """Return the authority kept in ``folder``, made on the first call."""
    key_path, path = folder / f"{name}.key", folder / f"{name}.crt"
    if not (key_path.exists() and path.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tandem-{name}")])
        builder = _builder(subject, subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        _write_key(key_path, key)
        files.write(path, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    loaded = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{key_path} is not an elliptic-curve key")
    return Authority(folder, name, loaded, x509.load_pem_x509_certificate(path.read_bytes()))


def issue(authority: Authority, name: str, identity: Identity) -> tuple[Path, Path]:
    """Return the paths of certificate and key ``<name>``, made unless a matching pair is there."""
    path, key_path = authority.folder / f"{name}.crt", authority.folder / f"{name}.key"
    if path.exists() and key_path.exists() and _names_in(path) >= set(identity.names):
        return path, key_path
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, identity.user))
    builder = _builder(x509.Name(attributes), authority.certificate.subject, key.public_key())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if identity.names:
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = x509.SubjectAlternativeName([_general_name(text) for text in identity.names])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = builder.add_extension(issuer_key, critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    # The certificate goes first and comes last: a run killed in between leaves no pair that does not match.
    path.unlink(missing_ok=True)
    _write_key(key_path, key)
    files.write(path, certificate.public_bytes(serialization.Encoding.PEM))
    return path, key_path


def service_account_keys(folder: Path) -> tuple[Path, Path]:
    """Return the paths of the public and private key that sign service-account tokens."""
    public, private = folder / "sa.pub", folder / "sa.key"
    if not (public.exists() and private.exists()):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_key(private, key)
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        files.write(public, key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return public, private


def _builder(subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    builder = builder.serial_number(x509.random_serial_number())
    # An hour back: a clock set back a little must not make the cluster's certificates invalid.
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + VALID_FOR)
    # Python 3.13 verifies strictly: without key identifiers and usages it refuses the chain.
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _names_in(path: Path) -> set[str]:
    extensions = x509.load_pem_x509_certificate(path.read_bytes()).extensions
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = names.get_values_for_type(x509.IPAddress)
    return {*names.get_values_for_type(x509.DNSName), *map(str, addresses)}


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files.write(path, key.private_bytes(encoding, form, serialization.NoEncryption()), mode=0o600)
