"""S3 (moto) and Cloud Storage (fake-gcs-server) through the real client, the fetcher killed and hindered."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from fetcher import servers, wire
from fetcher.conftest import FETCHED, WEIGHTS, Fetcher, make_model
from fetcher.wire import Wire
from tandem_fetcher.buckets import Bucket
from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.uri import parse

BUCKET = "models"
LARGE = "model-00001-of-00002.safetensors"
MIB = 1024 * 1024


@dataclass
class Store:
    """An object store behind a counted wire, and the environment that the fetcher needs for it."""

    scheme: str
    wire: Wire
    env: dict[str, str] = field(default_factory=dict)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.wire.port}"

    def put(self, prefix: str, name: str, data: bytes) -> None:
        path = f"{prefix}/{name}"
        if self.scheme == "s3":
            obstore.put(self.signed(), path, data, chunk_size=8 * MIB)
        else:
            quoted = path.replace("/", "%2F")
            self.request("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quoted}", data)

    def signed(self) -> S3Store:
        """S3 with the fetcher's credentials."""
        return S3Store(
            BUCKET,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id="key",
            secret_access_key="secret",
            client_options={"allow_http": True},
        )

    def make_bucket(self) -> None:
        if self.scheme == "s3":
            self.request("PUT", f"/{BUCKET}", b"")
        else:
            self.request("POST", "/storage/v1/b?project=p", json.dumps({"name": BUCKET}).encode())

    def request(self, method: str, path: str, data: bytes) -> None:
        headers = {"Content-Type": "application/json" if path.startswith("/storage") else "text/plain"}
        url = f"http://127.0.0.1:{self.wire.target}{path}"
        urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)).close()

    def upload(self, prefix: str, folder: Path) -> str:
        """Put a folder's files below a prefix; return its URI."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(prefix, str(path.relative_to(folder)), path.read_bytes())
        return f"{self.scheme}://{BUCKET}/{prefix}"


@pytest.fixture(scope="module")
def s3() -> Iterator[Store]:
    with servers.s3() as port, wire.before(port) as proxy:
        store = Store("s3", proxy)
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        store.env = {"AWS_ENDPOINT_URL": store.endpoint, **keys}
        store.make_bucket()
        yield store


@pytest.fixture(scope="module")
def gs() -> Iterator[Store]:
    with servers.cloud_storage() as port, wire.before(port) as proxy:
        store = Store("gs", proxy)
        store.env = {"STORAGE_EMULATOR_HOST": store.endpoint}
        store.make_bucket()
        yield store


@pytest.fixture(params=["s3", "gs"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    found.wire.bytes_per_second = 0
    return found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "source")


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Where this test alone puts its model."""
    return f"llm/{tmp_path.name}"


def test_a_model_is_fetched_once(store: Store, tmp_path: Path, model: Path, prefix: str) -> None:
    fetcher, uri = Fetcher(tmp_path, store.env), store.upload(prefix, model)
    resolved = fetcher.run("resolve", uri)
    result = fetcher.fetch(uri, "--revision", resolved.verdict["revision"])
    assert (result.code, result.check["status"], result.reason) == (0, "True", "Fetched"), result.log
    assert fetcher.names(result) == FETCHED
    folder = fetcher.cache / result.verdict["path"]
    assert all((folder / name).read_bytes() == (model / name).read_bytes() for name in FETCHED)
    before = store.wire.sent
    assert fetcher.fetch(uri, "--revision", resolved.verdict["revision"]).reason == "Cached"
    assert store.wire.sent == before


def test_killed_midway_it_goes_on_where_it_ended(store: Store, tmp_path: Path, model: Path, prefix: str) -> None:
    fetcher, uri = Fetcher(tmp_path, store.env), store.upload(prefix, model)
    store.wire.bytes_per_second = 1_000_000
    process = fetcher.start("fetch", uri)
    fetcher.wait_for_bytes(2 * WEIGHTS / 3)
    fetcher.kill(process)
    kept, store.wire.bytes_per_second, store.wire.sent = fetcher.cached_bytes(), 0, 0
    result = fetcher.fetch(uri)
    assert result.reason == "Fetched", result.log
    # Two listings, and what the sockets held for the one that was dead.
    assert store.wire.sent < 2 * WEIGHTS - kept + MIB


def test_other_content_is_another_revision(store: Store, tmp_path: Path, model: Path, prefix: str) -> None:
    fetcher, uri = Fetcher(tmp_path, store.env), store.upload(prefix, model)
    first = fetcher.run("resolve", uri).verdict
    store.put(prefix, "config.json", b'{"vocab_size": 301}')
    second = fetcher.run("resolve", uri).verdict
    assert first["revision"] != second["revision"]
    assert first["path"] != second["path"]
    refused = fetcher.fetch(uri, "--revision", first["revision"])
    assert (refused.code, refused.reason) == (0, "RevisionNotFound")
    assert second["revision"] in refused.check["message"]


def test_nothing_below_the_prefix(store: Store, tmp_path: Path) -> None:
    result = Fetcher(tmp_path, store.env).fetch(f"{store.scheme}://{BUCKET}/none")
    assert (result.code, result.check["status"], result.reason) == (0, "False", "ModelNotFound")


def test_no_such_bucket(s3: Store, tmp_path: Path) -> None:
    result = Fetcher(tmp_path, s3.env).fetch("s3://none/model")
    assert (result.code, result.reason) == (0, "ModelNotFound")
    assert "correct the URI" in result.check["message"]


def test_an_unreachable_store_is_worth_another_try(s3: Store, tmp_path: Path) -> None:
    env = {**s3.env, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    result = Fetcher(tmp_path, env).fetch("s3://models/llm")
    assert (result.code, result.check["status"], result.reason) == (1, "Unknown", "SourceUnavailable")
    assert len(result.verdict["checks"][0]["message"]) < 500


KEYS = {"AWS_ACCESS_KEY_ID": "SECRET", "AWS_SECRET_ACCESS_KEY": "SECRET"}
WRONG = [
    # URI, variables, verdict's reason, part of its message, what is wrong
    (
        "gs://b/m",
        {"GOOGLE_SERVICE_ACCOUNT_KEY": '{"private_key": "SECRET'},
        "TokenInvalid",
        "credentials of gs://b",
        "a key that was cut off",
    ),
    (
        "gs://b/m",
        {"GOOGLE_SERVICE_ACCOUNT_KEY": "U0VDUkVU"},
        "TokenInvalid",
        "correct the model's Secret",
        "encoded twice",
    ),
    (
        "gs://b/m",
        {"GOOGLE_SERVICE_ACCOUNT_KEY": '"SECRET"'},
        "TokenInvalid",
        "invalid type: string …",
        "JSON in a JSON string",
    ),
    (
        "gs://b/m",
        {"GOOGLE_APPLICATION_CREDENTIALS": "/no/key.json"},
        "TokenInvalid",
        "/no/key.json",
        "a file that is not mounted",
    ),
    ("gs://b/m", {"STORAGE_EMULATOR_HOST": "fake:9"}, "InvalidUri", "STORAGE_EMULATOR_HOST is no URL", "no scheme"),
    (
        "s3://b/m",
        {"AWS_ACCESS_KEY_ID": "SECRET"},
        "TokenInvalid",
        "Missing SecretAccessKey",
        "half of the credentials",
    ),
    (
        "s3://b/m",
        {**KEYS, "AWS_SESSION_TOKEN": "SECRET\nSECRET"},
        "TokenInvalid",
        "AWS_SESSION_TOKEN holds",
        "wrapped lines",
    ),
    (
        "s3://b/m",
        {**KEYS, "AWS_SESSION_TOKEN": "SECRÉT"},
        "TokenInvalid",
        "AWS_SESSION_TOKEN holds",
        "a letter that is none",
    ),
    ("s3://b/m", {**KEYS, "AWS_ENDPOINT_URL": "minio:9000"}, "InvalidUri", "AWS_ENDPOINT_URL is no URL", "no scheme"),
    ("s3://b/m", {**KEYS, "AWS_ENDPOINT_URL": "http://minio:99999"}, "InvalidUri", "http://host:port", "no port"),
    ("hf://a/m", {"HF_ENDPOINT": "http://hub:99999"}, "InvalidUri", "HF_ENDPOINT is no URL", "no port"),
    ("hf://a/m", {"HF_ENDPOINT": "hub"}, "InvalidUri", "HF_ENDPOINT is no URL", "no scheme"),
    ("hf://a/m", {"HF_TOKEN": "SECRÉT"}, "TokenInvalid", "HF_TOKEN holds", "a letter that is none"),
]


@pytest.mark.parametrize(
    ("uri", "env", "reason", "message", "why"), WRONG, ids=[f"{row[0]} {row[4]}" for row in WRONG]
)
def test_a_secret_that_no_library_can_read(
    tmp_path: Path, uri: str, env: dict[str, str], reason: str, message: str, why: str
) -> None:
    result = Fetcher(tmp_path, env).run("resolve", uri)
    assert (result.code, result.check["status"], result.reason) == (0, "False", reason), why
    assert message in result.check["message"]
    assert "SECR" not in json.dumps(result.verdict) + result.log


def test_a_secret_whose_values_end_with_a_line_break(store: Store, tmp_path: Path, model: Path, prefix: str) -> None:
    env = {name: f"{value}\n" for name, value in store.env.items()}
    result = Fetcher(tmp_path, env).fetch(store.upload(prefix, model))
    assert (result.code, result.reason) == (0, "Fetched"), result.log


def test_folders_made_in_the_console(s3: Store, tmp_path: Path, model: Path, prefix: str) -> None:
    uri = s3.upload(prefix, model)
    for folder in ("", "original/"):
        s3.request("PUT", f"/{BUCKET}/{prefix}/{folder}", b"")
    fetcher = Fetcher(tmp_path, s3.env)
    result = fetcher.fetch(uri)
    assert result.reason == "Fetched", result.log
    assert fetcher.names(result) == FETCHED


def test_a_hostile_key_is_refused(s3: Store, tmp_path: Path, model: Path, prefix: str) -> None:
    uri = s3.upload(prefix, model)
    s3.request("PUT", f"/{BUCKET}/{prefix}/%2e%2e/%2e%2e/x.json", b"{}")
    result = Fetcher(tmp_path, s3.env).fetch(uri)
    assert (result.code, result.reason) == (0, "UnsafeFileName")
    assert not list(tmp_path.rglob("x.json"))


def test_parts_of_an_upload_are_verified(s3: Store, tmp_path: Path, model: Path, prefix: str) -> None:
    fetcher, uri = Fetcher(tmp_path, s3.env), s3.upload(prefix, model)
    content = (model / LARGE).read_bytes() * 6
    s3.put(prefix, LARGE, content)
    path = fetcher.cache / fetcher.run("resolve", uri).verdict["path"]
    (path / ".partial").mkdir(parents=True)
    (path / ".partial" / LARGE).write_bytes(bytes(MIB))  # what a power cut leaves
    result = fetcher.fetch(uri)
    assert result.reason == "Fetched"
    assert f"{LARGE}: the digest is" in result.log
    assert (path / LARGE).read_bytes() == content
    manifest = json.loads((path / ".complete").read_text())
    (digest,) = (file["digest"] for file in manifest["files"] if file["name"] == LARGE)
    assert digest.startswith("md5-parts:")
    assert digest.endswith("-3")


def test_a_file_is_never_made_of_two_versions(
    s3: Store, model: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(parse(s3.upload(prefix, model)))
    revision = bucket.resolve("")
    file = next(file for file in bucket.files(revision) if file.name == LARGE)
    assert len(next(bucket.stream(revision, file, WEIGHTS // 2))) > 0
    s3.put(prefix, LARGE, bytes(WEIGHTS))
    with pytest.raises(FetchError) as caught:
        next(bucket.stream(revision, file, WEIGHTS // 2))
    assert caught.value.reason is Reason.SOURCE_CHANGED
    with pytest.raises(FetchError) as caught:
        bucket.files(revision)
    assert caught.value.reason is Reason.SOURCE_CHANGED


def test_credentials_that_may_not_read(s3: Store, tmp_path: Path) -> None:
    # From now on moto knows nobody: this test is the module's last on S3.
    s3.request("POST", "/moto-api/reset-auth", b"0")
    result = Fetcher(tmp_path, s3.env).fetch("s3://models/llm")
    s3.request("POST", "/moto-api/reset-auth", b"inf")
    assert (result.code, result.reason) == (0, "AccessDenied")
    assert "secretName" in result.check["message"]
