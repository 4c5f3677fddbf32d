"""Who trusts whom."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from cluster import pki
from cluster.kubeconfig import Access

pytestmark = pytest.mark.nightly


def _read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_certificate_is_trusted_by_its_authority_alone(tmp_path: Path) -> None:
    clients, proxies = pki.load_authority(tmp_path, "ca"), pki.load_authority(tmp_path, "front-proxy-ca")
    certificate = _read(pki.issue(clients, "admin", pki.Identity("admin", ("system:masters",)))[0])
    certificate.verify_directly_issued_by(clients.certificate)
    with pytest.raises((ValueError, InvalidSignature)):
        certificate.verify_directly_issued_by(proxies.certificate)


def test_user_and_groups_are_where_the_api_server_looks(tmp_path: Path) -> None:
    identity = pki.Identity("system:node:n", ("system:nodes", "more"))
    subject = _read(pki.issue(pki.load_authority(tmp_path, "ca"), "node", identity)[0]).subject
    found = {attribute.rfc4514_string() for attribute in subject}
    assert found == {"CN=system:node:n", "O=system:nodes", "O=more"}


def test_certificates_are_kept(tmp_path: Path) -> None:
    for _ in range(2):
        pki.issue(pki.load_authority(tmp_path, "ca"), "x", pki.Identity("x", names=("localhost", "127.0.0.1")))
        pki.service_account_keys(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    pki.issue(pki.load_authority(tmp_path, "ca"), "x", pki.Identity("x", names=("localhost",)))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_a_new_name_makes_a_new_certificate(tmp_path: Path) -> None:
    authority = pki.load_authority(tmp_path, "ca")
    path, _ = pki.issue(authority, "x", pki.Identity("x", names=("127.0.0.1",)))
    before = path.read_bytes()
    pki.issue(authority, "x", pki.Identity("x", names=("127.0.0.1", "10.0.0.1")))
    assert path.read_bytes() != before


def test_a_run_killed_while_it_wrote_keys_is_made_good(tmp_path: Path) -> None:
    pki.load_authority(tmp_path, "ca")
    (tmp_path / "ca.crt").unlink()  # the key is written first
    authority = pki.load_authority(tmp_path, "ca")
    assert authority.certificate.public_key() == authority.key.public_key()


def test_keys_are_secret(tmp_path: Path) -> None:
    pki.issue(pki.load_authority(tmp_path, "ca"), "x", pki.Identity("x"))
    pki.service_account_keys(tmp_path)
    kubeconfig = Access(pki.load_authority(tmp_path, "ca"), "c").write(
        tmp_path / "kubeconfig", "https://127.0.0.1:1", pki.Identity("x")
    )
    for path in (*tmp_path.glob("*.key"), kubeconfig):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_kubeconfig_is_whole_without_other_files(tmp_path: Path) -> None:
    access = Access(pki.load_authority(tmp_path / "pki", "ca"), "c")
    content = yaml.safe_load(access.write(tmp_path / "kubeconfig", "https://h:1", pki.Identity("me")).read_text())
    assert content["clusters"][0]["cluster"]["server"] == "https://h:1"
    assert content["current-context"] == content["contexts"][0]["name"]
    assert str(tmp_path) not in (tmp_path / "kubeconfig").read_text()
