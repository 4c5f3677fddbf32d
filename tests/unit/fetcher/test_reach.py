"""Messages that name the cause: certificates, proxies, names and networks; by the libraries' own texts."""

import os
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError

from tandem_fetcher import environment
from tandem_fetcher.buckets import Bucket
from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.reach import unreachable
from tandem_fetcher.uri import parse

HUB, MIRROR, S3 = (
    "https://huggingface.co/api/models/a/b",
    "https://mirror.corp/api/models/a/b",
    "https://s3.corp/bucket",
)
PROXY = {"HTTPS_PROXY": "http://user:secret@proxy.corp:3128"}
OWN = {"HF_ENDPOINT": "https://mirror.corp", "AWS_ENDPOINT_URL": "https://s3.corp"}

ROWS: list[tuple[str, str, str, str, dict[str, str], str]] = [
    # why, scheme, URL, the library's text, environment, the message
    (
        "an authority of one's own",
        "hf",
        MIRROR,
        "ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate",
        OWN,
        "https://mirror.corp has a certificate of an authority that is not known here: give the download the"
        " authority's certificate, with SSL_CERT_FILE as the path of its file",
    ),
    (
        "the same of a bucket",
        "s3",
        S3,
        "HttpError InvalidCertificate(UnknownIssuer)",
        OWN,
        "authority that is not known",
    ),
    ("behind a proxy, too", "hf", HUB, "CERTIFICATE_VERIFY_FAILED", PROXY, "authority that is not known here"),
    ("an old certificate", "hf", MIRROR, "certificate verify failed: certificate has expired", OWN, "renew it"),
    ("the same of a bucket", "s3", S3, "InvalidCertificate(Expired)", OWN, "renew it"),
    (
        "another name",
        "hf",
        MIRROR,
        "Hostname mismatch, certificate is not valid for",
        OWN,
        "correct HF_ENDPOINT, or the",
    ),
    (
        "the same of a bucket",
        "s3",
        S3,
        "InvalidCertificate(NotValidForName)",
        OWN,
        "correct AWS_ENDPOINT_URL, or the",
    ),
    ("no TLS", "hf", MIRROR, "[SSL: WRONG_VERSION_NUMBER] wrong version number", OWN, "write http:// in HF_ENDPOINT"),
    (
        "the same of a bucket",
        "s3",
        S3,
        "InvalidMessage(InvalidContentType)",
        OWN,
        "write http:// in AWS_ENDPOINT_URL",
    ),
    (
        "a dead proxy",
        "hf",
        HUB,
        "ConnectError: [Errno 111] Connection refused",
        PROXY,
        "https://huggingface.co cannot be reached through the proxy http://proxy.corp:3128 (HTTPS_PROXY, HTTP_PROXY):"
        " correct the proxy, or add huggingface.co to NO_PROXY",
    ),
    ("a proxy without a name in DNS", "s3", S3, "dns error", PROXY, "through the proxy http://proxy.corp:3128"),
    ("a proxy that refuses", "hf", HUB, "ProxyError: 403 Forbidden", PROXY, "is refused through the proxy"),
    ("the same of a bucket", "s3", S3, "TunnelUnsuccessful", PROXY, "is refused through the proxy"),
    (
        "past the proxy",
        "hf",
        MIRROR,
        "refused",
        {**PROXY, **OWN, "NO_PROXY": ".corp"},
        "check the network; or correct HF_",
    ),
    (
        "no mirror was named",
        "hf",
        HUB,
        "[Errno -2] Name or service not known",
        {},
        "https://huggingface.co has no address in DNS: for a mirror or a store of your own write HF_ENDPOINT into the"
        " model's Secret, or name a proxy in HTTPS_PROXY",
    ),
    (
        "nor a store",
        "s3",
        "https://s3.amazonaws.com/b",
        "dns error",
        {},
        "write AWS_ENDPOINT_URL into the model's Secret",
    ),
    (
        "a wrong mirror",
        "hf",
        MIRROR,
        "Temporary failure in name resolution",
        OWN,
        "DNS: correct HF_ENDPOINT, or name",
    ),
    ("TLS is wanted", "hf", "http://mirror.corp/x", "ReadError: ", OWN, "does it want https:// in HF_ENDPOINT?"),
    (
        "nothing listens",
        "gs",
        "https://storage.googleapis.com/b",
        "Connection refused",
        {},
        "check the network; or for a",
    ),
]


@pytest.mark.parametrize(
    ("scheme", "url", "details", "env", "message"), [row[1:] for row in ROWS], ids=[f"{r[0]} {r[1]}" for r in ROWS]
)
def test_why_a_host_cannot_be_reached(
    scheme: str, url: str, details: str, env: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(monkeypatch, env)
    error = unreachable(scheme, url, details)
    assert error.reason is Reason.SOURCE_UNAVAILABLE
    assert message in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize(("env", "named"), [({}, True), ({"AWS_ENDPOINT_URL": "https://s3.corp"}, False)])
def test_amazon_is_named_where_a_store_of_one_s_own_was_meant(
    env: dict[str, str], named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the keys of another store, to which they are right."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    alone(monkeypatch, {**keys, **env})

    def denied(*_: object) -> None:
        raise PermissionDeniedError("InvalidAccessKeyId")

    monkeypatch.setattr(obstore, "list", denied)
    with pytest.raises(FetchError, match="s3://b denies access") as raised:
        Bucket(parse("s3://b/x")).resolve("")
    assert raised.value.reason is Reason.ACCESS_DENIED
    told = " (Amazon's own S3, since AWS_ENDPOINT_URL is not set: write it for another store)"
    assert (told in str(raised.value)) == named


def alone(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    """These variables and no others of the fetcher's."""
    for name in os.environ:
        if name.upper().endswith(("_PROXY", "_BUNDLE")) or name.startswith(("SSL_", "HF_", "AWS_", "GOOGLE_")):
            monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


UNUSABLE: list[tuple[dict[str, str], str]] = [
    ({"SSL_CERT_FILE": "/none/ca.crt"}, "SSL_CERT_FILE is /none/ca.crt, which is missing: is its volume mounted?"),
    ({"REQUESTS_CA_BUNDLE": "/none/ca.crt"}, "REQUESTS_CA_BUNDLE is /none/ca.crt, which is missing"),
    ({"AWS_CA_BUNDLE": "/none/ca.crt\n"}, "AWS_CA_BUNDLE is /none/ca.crt, which is missing"),
    ({"SSL_CERT_FILE": __file__}, "which holds no certificate in PEM format; correct it where it is set"),
    ({"SSL_CERT_FILE": "/"}, "SSL_CERT_FILE is /, which cannot be read"),
    ({"SSL_CERT_DIR": "/none"}, "SSL_CERT_DIR is /none, which is no folder"),
    ({"HTTPS_PROXY": "http://:3128"}, "HTTPS_PROXY is no URL: write it as http://host:port"),
    ({"https_proxy": "http://user:secret@proxy:port"}, "https_proxy is no URL"),
    ({"ALL_PROXY": "socks5://proxy:1080"}, "ALL_PROXY is a SOCKS proxy, which downloads cannot use"),
    ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids downloads: remove it"),
]


@pytest.mark.parametrize(("env", "message"), UNUSABLE, ids=[row[1] for row in UNUSABLE])
def test_a_variable_that_cannot_be_used(env: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(monkeypatch, env)
    with pytest.raises(FetchError) as raised:
        environment.prepare("hf")
    assert raised.value.reason is Reason.ENVIRONMENT_INVALID
    assert message in str(raised.value)
    assert "in the model's Secret, or in the environment of Jobs" in str(raised.value)
    assert "user:" not in str(raised.value)


def test_variables_that_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy without a scheme, as curl takes it; an empty file name; a bundle by another program's name."""
    alone(monkeypatch, {"HTTPS_PROXY": "proxy.corp:3128\n", "SSL_CERT_FILE": "", "SSL_CERT_DIR": f"/none:{tmp_path}"})
    environment.prepare("s3")
    assert os.environ["HTTPS_PROXY"] == "proxy.corp:3128"
    assert "SSL_CERT_FILE" not in os.environ
