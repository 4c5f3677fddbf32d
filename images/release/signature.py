"""Checksums of a release's files, and their signature by the releaser's own key.

The signature is ECDSA over P-256 with SHA-256, in base64: `cosign sign-blob --key` writes the same, so cosign and
openssl both verify it.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from builder.errors import BuildError

SUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"
PUBLIC_KEY = "release.pub"
_NOT_SUMMED = (SUMS, SIGNATURE, PUBLIC_KEY)


def sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below ``folder`` by its path, in order, without those of this module."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name: sha256(folder / name) for name in files if name not in _NOT_SUMMED}


def write_sums(folder: Path) -> Path:
    """Write SHA256SUMS, as `sha256sum --check` reads it."""
    path = folder / SUMS
    path.write_text("".join(f"{digest}  {name}\n" for name, digest in sums(folder).items()), encoding="utf-8")
    return path


def load(key: Path, password: str | None) -> ec.EllipticCurvePrivateKey:
    """Read a private key (PEM); raises BuildError when it is none, of another kind, or the password is wrong."""
    try:
        found = serialization.load_pem_private_key(key.read_bytes(), password.encode() if password else None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BuildError(
            f"cannot read the key {key}: {error}; KEY_PASSWORD has its password, where it has one"
        ) from error
    if not (isinstance(found, ec.EllipticCurvePrivateKey) and isinstance(found.curve, ec.SECP256R1)):
        raise BuildError(
            f"the key {key} is not of P-256: make one with `openssl genpkey -algorithm EC -pkeyopt "
            "ec_paramgen_curve:P-256`"
        )
    return found


def sign(folder: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Sign the checksums in ``folder`` and put the public key next to them."""
    signature = key.sign((folder / SUMS).read_bytes(), ec.ECDSA(hashes.SHA256()))
    (folder / SIGNATURE).write_bytes(base64.b64encode(signature) + b"\n")
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / PUBLIC_KEY).write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, public))


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
