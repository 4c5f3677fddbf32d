"""S3 and Cloud Storage, and what speaks their protocols, through Apache's object_store (obstore).

Credentials and endpoints are the environment's: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
AWS_ENDPOINT_URL, web identity; GOOGLE_SERVICE_ACCOUNT_KEY, GOOGLE_APPLICATION_CREDENTIALS, STORAGE_EMULATOR_HOST,
workload identity; AWS_SKIP_SIGNATURE=true and GOOGLE_SKIP_SIGNATURE=true for public buckets.
https://developmentseed.org/obstore/latest/api/store/aws/, .../gcs/
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore, S3Store

from tandem_fetcher import digests
from tandem_fetcher.environment import ENDPOINTS
from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.reach import unreachable
from tandem_fetcher.selection import MAX_FILES
from tandem_fetcher.source import BLOCK, RemoteFile
from tandem_fetcher.uri import ModelUri

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSConfig, RetryConfig

# Where the library looks last for credentials.
_METADATA_SERVERS = ("169.254.169.254", "metadata.google.internal", "metadata/computeMetadata")
_SENT = re.compile(r"Error performing [A-Z]+ (https?://[^\s?]+)")
_RETRIES: RetryConfig = {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
Object = tuple[str, int, str | None]
"""Name, size and ETag."""
_SECRET = "put credentials that may list and read it into the Secret that the model's secretName names"


class Bucket:
    """The objects below a prefix. They have no revision: what is pinned is their listing."""

    def __init__(self, uri: ModelUri) -> None:
        self._uri = uri
        self._etags: dict[str, str | None] = {}
        try:
            self._store = _store(uri)
        except (BaseError, ValueError) as error:  # it reads the credentials
            # What it quotes is a secret: all of a key that was written as a JSON string, for instance.
            line = re.sub(r'".*', "…", _first_line(error))
            message = (
                f"the credentials of {uri.scheme}://{uri.root} cannot be used ({line}): correct the model's Secret"
            )
            raise FetchError(Reason.TOKEN_INVALID, message) from None

    def resolve(self, revision: str) -> str:
        """See Source. A digest of names, sizes and ETags; one that was pinned must be the one there now."""
        now = listing_digest(self._list())
        if revision not in ("", now):
            message = (
                f"{self._uri} changed since revision {revision!r}: leave `revision` out to take what is there now, "
                f"which is {now}"
            )
            raise FetchError(Reason.REVISION_NOT_FOUND, message)
        return now

    def files(self, revision: str) -> list[RemoteFile]:
        """See Source."""
        listed = self._list()
        if listing_digest(listed) != revision:
            raise FetchError(Reason.SOURCE_CHANGED, f"{self._uri} is being written to: wait until that is done")
        files = without_folders(listed)
        self._etags = {name: etag for name, _, etag in files}
        return [RemoteFile(name, size, digests.from_etag(etag, size)) for name, size, etag in files]

    def _list(self) -> list[Object]:
        """Return the objects, sorted."""
        with self._errors():
            batches = obstore.list(self._store)
            objects = list(itertools.islice(itertools.chain.from_iterable(batches), MAX_FILES + 1))
        if not objects:
            message = f"there is nothing below {self._uri}: correct the bucket and the prefix"
            raise FetchError(Reason.MODEL_NOT_FOUND, message)
        return sorted((entry["path"], entry["size"], entry["e_tag"]) for entry in objects)

    def stream(self, revision: str, file: RemoteFile, offset: int) -> Iterator[bytes]:
        """See Source. Only of the object that was listed: another one has another ETag."""
        with self._errors():
            result = obstore.get(
                self._store, file.name, options={"range": {"offset": offset}, "if_match": self._etags[file.name]}
            )
            for block in result.stream(min_chunk_size=BLOCK):
                yield bytes(block)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError, ValueError) as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> FetchError:
        where, text = f"{self._uri.scheme}://{self._uri.root}", str(error)
        # Of a failed listing the library says the status in its text alone.
        status = found[1] if (found := re.search(r"status code: ([0-9]{3})", text)) else ""
        if any(server in text for server in _METADATA_SERVERS):
            return FetchError(Reason.TOKEN_NEEDED, f"there are no credentials for {where}: {_SECRET}")
        if isinstance(error, FileNotFoundError) or status == "404":
            message = f"there is no {self._uri}, or no bucket of that name: correct the URI"
            return FetchError(Reason.MODEL_NOT_FOUND, message)
        if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or status in ("401", "403"):
            return FetchError(Reason.ACCESS_DENIED, f"{where} denies access{self._asked()}: {_SECRET}")
        if isinstance(error, PreconditionError):
            message = f"{self._uri} was written to while it was read: the next try takes what is there then"
            return FetchError(Reason.SOURCE_CHANGED, message)
        if (sent := _SENT.search(text)) and "HttpError" in text:
            return unreachable(self._uri.scheme, sent[1], text)
        line = _first_line(error)
        if isinstance(error, InvalidPathError):
            return FetchError(Reason.UNSAFE_FILE_NAME, f"{where} has a key that is no path: {line}")
        return FetchError(Reason.SOURCE_UNAVAILABLE, f"{where} cannot be read: {line}")

    def _asked(self) -> str:
        """Whom, where a store of one's own was meant and its address was not given."""
        if self._uri.scheme != "s3" or any(os.environ.get(name) for name in ENDPOINTS["s3"]):
            return ""
        return " (Amazon's own S3, since AWS_ENDPOINT_URL is not set: write it for another store)"


def _first_line(error: Exception) -> str:
    """The library's errors end with their values as Rust writes them."""
    return str(error).strip().splitlines()[0][:300]


def without_folders(listed: Sequence[Object]) -> list[Object]:
    """Leave out the empty objects by which the stores' consoles show folders: their keys end with the "/" that the
    library takes off, and that of the model's own folder is "" below it."""
    folders = {""}
    for name, _, _ in listed:
        folders.update(itertools.accumulate(name.split("/")[:-1], "{}/{}".format))
    return [each for each in listed if each[1] or each[0] not in folders]


def listing_digest(listed: Sequence[Object]) -> str:
    """Return 40 hex digits that name these objects and their contents."""
    return hashlib.sha256(json.dumps(sorted(listed)).encode()).hexdigest()[:40]


def _store(uri: ModelUri) -> S3Store | GCSStore:
    """Return the bucket below the prefix. Plain HTTP only to an endpoint that is written so."""
    endpoints = [os.environ.get(name, "") for name in ENDPOINTS[uri.scheme]]
    client: ClientConfig = {
        "allow_http": any(endpoint.startswith("http://") for endpoint in endpoints),
        "connect_timeout": "10s",
        "read_timeout": "60s",
        "timeout": "24h",  # of a whole file; the library's default is 30 s
    }
    prefix = uri.folder or None
    if uri.scheme == "s3":
        return S3Store(uri.root, prefix=prefix, client_options=client, retry_config=_RETRIES)
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    config: GCSConfig = {"base_url": emulator, "skip_signature": True} if emulator else {}
    return GCSStore(uri.root, prefix=prefix, config=config, client_options=client, retry_config=_RETRIES)
