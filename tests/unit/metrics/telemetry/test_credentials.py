"""Who asks a Prometheus: what goes with a query, and what is said where a file is not what it should be."""

import base64
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.pki import Identity, issue, load_authority
from tandem.http.credentials import Credentials
from tandem.metrics.telemetry.prometheus import PrometheusSource
from tandem.metrics.telemetry.source import ScrapeTarget
from tandem.metrics.telemetry.windows import Store
from unit.metrics.telemetry.hostile_pods import fixed, serve

BASIC = "Basic " + base64.b64encode("jörg:open sesame".encode()).decode()

HEADERS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "nobody": ({}, {}),
    "a token; the line's end is not part of it": ({"bearerTokenFile": "token"}, {"Authorization": "Bearer abc.def"}),
    "a name and a password": ({"username": "jörg", "passwordFile": "password"}, {"Authorization": BASIC}),
    "a tenant": ({"headers": {"X-Scope-OrgID": "team-a"}}, {"X-Scope-OrgID": "team-a"}),
    "a tenant's token": (
        {"headers": {"X-Scope-OrgID": "a|b"}, "bearerTokenFile": "token"},
        {"X-Scope-OrgID": "a|b", "Authorization": "Bearer abc.def"},
    ),
}


def credentials(folder: Path, given: dict[str, Any]) -> Credentials:
    """With files of `folder`."""
    (folder / "token").write_text("abc.def\n")
    (folder / "password").write_text("open sesame\n")
    (folder / "empty").write_text("\n")
    (folder / "lines").write_text("a\r\nX-Evil: 1\n")
    (folder / "bytes").write_bytes(b"\xff\xfe")
    return Credentials.model_validate({k: f"{folder}/{v}" if k.endswith("File") else v for k, v in given.items()})


@pytest.mark.parametrize(("given", "headers"), HEADERS.values(), ids=HEADERS.keys())
def test_headers(tmp_path: Path, given: dict[str, Any], headers: dict[str, str]) -> None:
    assert credentials(tmp_path, given).request_headers() == headers


def test_a_file_is_read_anew_for_each_query(tmp_path: Path) -> None:
    found = credentials(tmp_path, {"bearerTokenFile": "token"})
    (tmp_path / "token").write_text("renewed")
    assert found.request_headers() == {"Authorization": "Bearer renewed"}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name alone": ({"username": "a"}, "username and passwordFile go together"),
    "a password alone": ({"passwordFile": "p"}, "username and passwordFile go together"),
    "a certificate without its key": ({"certFile": "c"}, "certFile and keyFile go together"),
    "two who ask": (
        {"username": "a", "passwordFile": "p", "bearerTokenFile": "t"},
        "write bearerTokenFile, or username and passwordFile, not both",
    ),
    "a secret among the settings": (
        {"headers": {"authorization": "Bearer x"}},
        "headers must not hold Authorization",
    ),
    "a header in a header": ({"headers": {"X-A": "1\r\nX-B: 2"}}, "should match pattern"),
    "a name that is no header's": ({"headers": {"X A": "1"}}, "should match pattern"),
    "a name that would end early": ({"username": "a:b", "passwordFile": "p"}, "should match pattern"),
    "a misspelt field": ({"tokenFile": "t"}, "Extra inputs are not permitted"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Credentials.model_validate(given)


FILES: dict[str, tuple[dict[str, Any], str]] = {
    "a token that is not there": ({"bearerTokenFile": "none"}, "none: No such file or directory"),
    "an empty one": ({"bearerTokenFile": "empty"}, "empty is not one line of text"),
    "a password with a header behind it": (
        {"username": "a", "passwordFile": "lines"},
        "lines is not one line of text",
    ),
    "bytes": ({"bearerTokenFile": "bytes"}, "bytes is not one line of text"),
    "an authority that is not there": ({"caFile": "none"}, "none: No such file or directory"),
    "an authority that is none": ({"caFile": "token"}, "token: "),
    "a key that is none": ({"certFile": "token", "keyFile": "token"}, "token: "),
}


@pytest.mark.parametrize(("given", "reason"), FILES.values(), ids=FILES.keys())
async def test_without_its_files_nothing_is_asked(tmp_path: Path, given: dict[str, Any], reason: str) -> None:
    target = ScrapeTarget("uid", "ns", "pod-a", "10.0.0.1")
    async with (
        serve(fixed(b"{}")) as server,
        PrometheusSource(f"http://127.0.0.1:{server.port}", credentials(tmp_path, given)) as prometheus,
    ):
        problems = await prometheus.collect([target], Store(300))
    assert reason in problems["uid"]
    assert "Prometheus cannot be read: " in problems["uid"]
    assert server.asked == 0


async def test_headers_go_with_the_query_and_not_to_where_it_is_sent_on(tmp_path: Path) -> None:
    given = {"headers": {"X-Scope-OrgID": "team-a"}, "bearerTokenFile": "token"}
    target = ScrapeTarget("uid", "ns", "pod-a", "10.0.0.1")
    async with serve(fixed(b"{}")) as other:
        away = fixed(b"", f"Location: http://127.0.0.1:{other.port}/\r\n", "307 Temporary Redirect")
        async with (
            serve(away) as server,
            PrometheusSource(f"http://127.0.0.1:{server.port}", credentials(tmp_path, given)) as prometheus,
        ):
            problems = await prometheus.collect([target], Store(300))
    assert b"\r\nX-Scope-OrgID: team-a\r\n" in server.request
    assert b"\r\nAuthorization: Bearer abc.def\r\n" in server.request
    assert problems["uid"].startswith("Prometheus answers 307")
    assert other.asked == 0


def test_a_certificate_of_ones_own_is_shown(tmp_path: Path) -> None:
    authority = load_authority(tmp_path, "ca")
    certificate, key = issue(authority, "reader", Identity("reader"))
    found = Credentials(ca_file=str(authority.path), cert_file=str(certificate), key_file=str(key))
    context = found.trust()
    assert not isinstance(context, bool)
    assert len(context.get_ca_certs()) == 1, "that authority, and no other"
