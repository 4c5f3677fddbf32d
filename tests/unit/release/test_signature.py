"""Signatures: openssl verifies them, and cosign's format is the same."""

import base64
import subprocess
from pathlib import Path

import pytest

from builder.errors import BuildError
from release import signature

pytestmark = pytest.mark.nightly

P256 = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)


def new_key(folder: Path, *kind: str) -> Path:
    assert openssl("genpkey", *kind, "-out", folder / "key.pem").returncode == 0
    return folder / "key.pem"


def verifies(folder: Path) -> bool:
    raw = base64.b64decode((folder / "SHA256SUMS.sig").read_text())
    (folder / "raw").write_bytes(raw)
    files = ("-verify", folder / "release.pub", "-signature", folder / "raw", folder / "SHA256SUMS")
    return openssl("dgst", "-sha256", *files).returncode == 0


@pytest.mark.parametrize("password", [None, "secret"])
def test_openssl_verifies_a_signature(tmp_path: Path, password: str | None) -> None:
    locked = ("-aes-256-cbc", "-pass", f"pass:{password}") if password else ()
    key = new_key(tmp_path, *P256, *locked)
    (tmp_path / "SHA256SUMS").write_text("ab  file\n")
    signature.sign(tmp_path, signature.load(key, password))
    assert verifies(tmp_path)
    (tmp_path / "SHA256SUMS").write_text("cd  file\n")
    assert not verifies(tmp_path)


def test_other_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="is not of P-256"):
        signature.load(new_key(tmp_path, "-algorithm", "ED25519"), None)
    with pytest.raises(BuildError, match="cannot read the key"):
        signature.load(tmp_path / "missing.pem", None)
    with pytest.raises(BuildError, match="KEY_PASSWORD"):
        signature.load(new_key(tmp_path, *P256, "-aes-256-cbc", "-pass", "pass:secret"), "wrong")
