"""TLS and proxies as clusters have them: the libraries against real sockets."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.pki import Identity, issue, load_authority
from cluster.ports import free_port
from fetcher.conftest import MODEL, Fetcher
from fetcher.hub_server import HubServer

HUB, BUCKET = f"hf://{MODEL}", "s3://b/x"
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
NOT_KNOWN = "{url} has a certificate of an authority that is not known here"
DEAD = "{url} cannot be reached through the proxy http://127.0.0.1:{closed}"


@dataclass(frozen=True)
class Corp:
    """A Hub behind TLS, its certificate of an authority of its own."""

    url: str
    authority: Path


@pytest.fixture
def corp(model: Path, tmp_path: Path) -> Iterator[Corp]:
    authority = load_authority(tmp_path / "pki", "corp")
    certificate, key = issue(authority, "hub", Identity("hub", names=("127.0.0.1",)))
    server = HubServer(model.parents[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.scheme, server.socket = "https", context.wrap_socket(server.socket, server_side=True)
    server.start()
    yield Corp(server.url, authority.path)
    server.shutdown()
    server.server_close()


CASES: list[tuple[str, str, dict[str, str], str, str]] = [
    # why, URI, environment ({url}, {ca}: of the Hub), reason, message
    ("its authority is given", HUB, {"SSL_CERT_FILE": "{ca}"}, "RevisionResolved", "is at revision"),
    ("as requests calls it", HUB, {"REQUESTS_CA_BUNDLE": "{ca}"}, "RevisionResolved", "is at revision"),
    (
        "it is not given",
        HUB,
        {},
        "SourceUnavailable",
        NOT_KNOWN,
    ),
    ("nor to a bucket", BUCKET, KEYS, "SourceUnavailable", NOT_KNOWN),
    (
        "to a bucket",
        BUCKET,
        {**KEYS, "AWS_CA_BUNDLE": "{ca}"},
        "ModelNotFound",
        "there is no s3://b/x, or no bucket",
    ),
    (
        "the file is not there",
        HUB,
        {"SSL_CERT_FILE": "/none/ca.crt"},
        "EnvironmentInvalid",
        "SSL_CERT_FILE is /none/ca.crt, which is missing: is its volume mounted?; correct it where it is set",
    ),
    ("nor for a bucket", BUCKET, {**KEYS, "SSL_CERT_FILE": "/none/ca.crt"}, "EnvironmentInvalid", "is missing"),
    (
        "a dead proxy",
        HUB,
        {"HTTPS_PROXY": "http://127.0.0.1:{closed}"},
        "SourceUnavailable",
        DEAD,
    ),
    (
        "of a bucket",
        BUCKET,
        {**KEYS, "HTTPS_PROXY": "127.0.0.1:{closed}"},
        "SourceUnavailable",
        DEAD,
    ),
    (
        "past it",
        HUB,
        {"HTTPS_PROXY": "http://127.0.0.1:{closed}", "NO_PROXY": "127.0.0.1", "SSL_CERT_FILE": "{ca}"},
        "RevisionResolved",
        "is at revision",
    ),
    (
        "a mirror's address without its path",
        HUB,
        {"HF_ENDPOINT": "{url}/artifactory", "SSL_CERT_FILE": "{ca}"},
        "ModelNotFound",
        f"{{url}}/artifactory has no {MODEL}, and does not answer as a Hub does (HTTP 404): write a mirror's"
        " whole address",
    ),
    (
        "nothing listens",
        HUB,
        {"HF_ENDPOINT": "http://127.0.0.1:{closed}"},
        "SourceUnavailable",
        "or correct HF_",
    ),
    (
        "nor for a bucket",
        BUCKET,
        {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:{closed}"},
        "SourceUnavailable",
        "AWS_",
    ),
]


@pytest.mark.parametrize(
    ("uri", "env", "reason", "message"), [row[1:] for row in CASES], ids=[f"{row[0]}, {row[1][:2]}" for row in CASES]
)
def test_what_is_in_the_way(
    corp: Corp, tmp_path: Path, uri: str, env: dict[str, str], reason: str, message: str
) -> None:
    here = {"url": corp.url, "ca": str(corp.authority), "closed": str(free_port())}
    places = {"HF_ENDPOINT": "{url}", "AWS_ENDPOINT_URL": "{url}", **env}
    fetcher = Fetcher(tmp_path, {name: value.format(**here) for name, value in places.items()})
    result = fetcher.run("resolve", uri)
    assert result.reason == reason, result.check["message"]
    assert message.format(**here) in result.check["message"]
    assert result.code == int(result.check["status"] == "Unknown" and reason != "RevisionResolved")
