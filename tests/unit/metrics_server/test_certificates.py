"""The server's certificate: made, renewed in time, trusted throughout."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from tandem.metrics_server.certificates import (
    AUTHORITY_DAYS,
    CERTIFICATE_DAYS,
    Certificate,
    CertificateError,
    renewed,
    secret,
)

NAMES = ("tandem-metrics.tandem-system.svc", "tandem-metrics.tandem-system")
START = datetime(2026, 1, 1, tzinfo=UTC)


def made(at: datetime = START) -> Certificate:
    found = renewed(None, NAMES, at)
    assert found is not None
    return found


def verify(served: Certificate, trusted: bytes, at: datetime) -> None:
    """What a client of the Service does; raises VerificationError."""
    store = Store(x509.load_pem_x509_certificates(trusted))
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(NAMES[0]))
    verifier.verify(x509.load_pem_x509_certificates(served.chain)[0], [])


def test_clients_of_the_service_accept_it_for_its_whole_life() -> None:
    certificate = made()
    for days in (0, CERTIFICATE_DAYS - 1):
        verify(certificate, certificate.authorities, START + timedelta(days=days))


DAYS: list[tuple[str, float, tuple[str, ...], bool, bool]] = [
    # why, days after it was made, names wanted, a new certificate, a new authority
    ("fresh", 0, NAMES, False, False),
    ("before two thirds of its life", CERTIFICATE_DAYS * 0.66, NAMES, False, False),
    ("after", CERTIFICATE_DAYS * 0.67, NAMES, True, False),
    ("expired while nobody ran", CERTIFICATE_DAYS + 1, NAMES, True, False),
    ("the Service has another name", 0, ("other.ns.svc",), True, False),
    ("the authority grows old", AUTHORITY_DAYS * 0.67, NAMES, True, True),
]


@pytest.mark.parametrize(("days", "names", "new", "authority"), [d[1:] for d in DAYS], ids=[d[0] for d in DAYS])
def test_renewal(days: float, names: tuple[str, ...], new: bool, authority: bool) -> None:
    before, now = made(), START + timedelta(days=days)
    after = renewed(before, names, now)
    assert (after is not None) is new
    if after:
        assert (after.authority_key != before.authority_key) is authority
        assert renewed(after, names, now) is None, "once is enough"


def test_a_renewal_disturbs_nobody() -> None:
    """Who trusts the old authorities accepts the new certificate, and the other way round, until all took both."""
    before, now = made(), START + timedelta(days=CERTIFICATE_DAYS * 0.7)
    after = renewed(before, NAMES, now)
    assert after is not None
    assert after.authorities == before.authorities
    verify(after, before.authorities, now)


def test_a_new_authority_is_told_beside_the_old_one() -> None:
    before, now = made(), START + timedelta(days=AUTHORITY_DAYS * 0.7)
    after = renewed(before, NAMES, now)
    assert after is not None
    verify(after, after.authorities, now)
    told = x509.load_pem_x509_certificates(after.authorities)
    assert told[1:] == x509.load_pem_x509_certificates(before.authorities)


def test_it_goes_through_a_secret_unchanged() -> None:
    certificate = made()
    manifest = secret("name", "ns", certificate, {"a": "b"}, None)
    assert manifest["type"] == "kubernetes.io/tls"
    assert Certificate.parse(manifest) == certificate


def test_a_replacement_names_the_version_that_it_replaces() -> None:
    before = {"metadata": {"name": "name", "namespace": "ns", "resourceVersion": "7"}}
    assert secret("name", "ns", made(), {}, before)["metadata"] == before["metadata"]


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("empty", {}),
    ("no base64", {"tls.crt": "%%%", "tls.key": "%%%"}),
    ("no certificate", {"tls.crt": "AAAA", "tls.key": "AAAA"}),
    ("no key", {"tls.crt": made().data()["tls.crt"]}),
    ("no authority beside its key", {**made().data(), "ca.crt": ""}),
    ("no key of the authority", {**made().data(), "ca.key": "AAAA"}),
]


@pytest.mark.parametrize("data", [b[1] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_broken_secret_is_said_with_what_to_do(data: dict[str, Any]) -> None:
    with pytest.raises(CertificateError, match=r"Secret name holds no certificate.*delete it"):
        Certificate.parse({"metadata": {"name": "name"}, "data": data})


def test_a_pair_that_does_not_match_is_refused() -> None:
    one, other = made(), made()
    with pytest.raises(CertificateError, match="cannot be used"):
        Certificate(one.authorities, one.chain, other.key).context("")
    with pytest.raises(CertificateError, match="cannot be used"):
        one.context("no PEM")
