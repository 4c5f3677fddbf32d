"""Hugging Face Hub, and what speaks its protocol (HF_ENDPOINT), through huggingface_hub.

The library's own file download begins anew in a new process, so files are streamed from where they ended.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, get_token, hf_raise_for_status, http_stream_backoff

from tandem_fetcher import digests, reach
from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.reach import unreachable
from tandem_fetcher.selection import MAX_FILES
from tandem_fetcher.source import BLOCK, RemoteFile
from tandem_fetcher.uri import ModelUri

COMMIT = re.compile(r"[0-9a-f]{40}")
_TIMEOUT = httpx2.Timeout(30, connect=10)
_SECRET = "put HF_TOKEN into the Secret that the model's secretName names"


class Hub:
    """A folder of a model repository."""

    def __init__(self, uri: ModelUri) -> None:
        self._uri = uri
        self._api = HfApi()

    def resolve(self, revision: str) -> str:
        """See Source. The commit of a branch or tag; a commit is taken as it is."""
        with self._errors(revision):
            sha = self._api.model_info(self._uri.root, revision=revision or None, timeout=30).sha
        if sha is None or not COMMIT.fullmatch(sha):
            raise FetchError(Reason.SOURCE_UNAVAILABLE, f"{self._api.endpoint} names no commit: check HF_ENDPOINT")
        return sha

    def files(self, revision: str) -> list[RemoteFile]:
        """See Source."""
        folder = self._uri.folder
        with self._errors(revision):
            entries = self._api.list_repo_tree(self._uri.root, folder or None, revision=revision, recursive=True)
            listed = list(itertools.islice(entries, MAX_FILES + 1))
        return [self._file(entry) for entry in listed if isinstance(entry, RepoFile)]

    def _file(self, entry: RepoFile) -> RemoteFile:
        name = entry.path.removeprefix(f"{self._uri.folder}/") if self._uri.folder else entry.path
        if entry.lfs is not None:
            return RemoteFile(name, entry.lfs.size, digests.sha256(entry.lfs.sha256))
        return RemoteFile(name, entry.size, digests.git_blob(entry.blob_id))

    def stream(self, revision: str, file: RemoteFile, offset: int) -> Iterator[bytes]:
        """See Source."""
        url = hf_hub_url(self._uri.root, file.name, subfolder=self._uri.folder, revision=revision)
        # Compressed, a range would be one of the compressed bytes.
        headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={offset}-"}
        if not offset:
            del headers["Range"]
        # Failures while the body is read are the caller's to repeat: they must not begin at `offset` again.
        with (
            self._errors(revision),
            http_stream_backoff("GET", url, headers=headers, timeout=_TIMEOUT, retry_on_exceptions=()) as response,
        ):
            hf_raise_for_status(response)
            skip = offset if response.status_code == httpx2.codes.OK else 0  # a server without ranges
            for block in response.iter_bytes(BLOCK):
                kept, skip = block[skip:], max(0, skip - len(block))
                if kept:
                    yield kept

    @contextmanager
    def _errors(self, revision: str) -> Iterator[None]:
        try:
            yield
        except HFValidationError:
            raise FetchError(Reason.INVALID_URI, f"the Hub knows no names like {self._uri.root!r}") from None
        except HfHubHTTPError as error:
            raise self._refusal(error, revision) from None
        except httpx2.HTTPError as error:
            # The Hub, or the host that it redirects downloads to.
            raise unreachable("hf", str(error.request.url), f"{type(error).__name__}: {error}") from None
        except (KeyError, TypeError, ValueError):
            message = f"{self._api.endpoint} does not answer as a Hub does: check HF_ENDPOINT"
            raise FetchError(Reason.SOURCE_UNAVAILABLE, message) from None

    def _refusal(self, error: HfHubHTTPError, revision: str) -> FetchError:
        """Explain a status. The library's own messages carry signed URLs."""
        model, status, host = self._uri.root, error.response.status_code, reach.host(str(error.response.url))
        if host != reach.host(self._api.endpoint):
            message = f"{host}, to which the Hub sends downloads, answers HTTP {status}: let the cluster reach it"
            return FetchError(Reason.SOURCE_UNAVAILABLE, message)
        if status == httpx2.codes.TOO_MANY_REQUESTS:
            return FetchError(Reason.SOURCE_UNAVAILABLE, self._too_many())
        if isinstance(error, GatedRepoError) and get_token() is None:
            message = f"{model} is gated: accept its terms at {self._page}, then {_SECRET}"
            return FetchError(Reason.TOKEN_NEEDED, message)
        if isinstance(error, GatedRepoError):
            message = f"{model} is gated and the token's account has no access: ask for it at {self._page}"
            return FetchError(Reason.ACCESS_DENIED, message)
        if isinstance(error, DisabledRepoError):
            return FetchError(Reason.ACCESS_DENIED, f"{model} was disabled by the Hub: choose another model")
        if isinstance(error, RevisionNotFoundError):
            message = f"{model} has no revision {revision!r}: correct it (a branch, tag or commit)"
            return FetchError(Reason.REVISION_NOT_FOUND, message)
        if isinstance(error, RemoteEntryNotFoundError):
            message = f"{model} has no {self._uri.folder or 'such file'} at revision {revision!r}: correct the URI"
            return FetchError(Reason.MODEL_NOT_FOUND, message)
        if isinstance(error, RepositoryNotFoundError):
            message = f"there is no {model} that this token may see: correct the URI; for a private model, {_SECRET}"
            return FetchError(Reason.MODEL_NOT_FOUND, message)
        if status == httpx2.codes.UNAUTHORIZED:
            return FetchError(Reason.TOKEN_INVALID, f"the Hub refuses the token: {_SECRET}, a valid one")
        return self._unexplained(error.response)

    def _unexplained(self, response: httpx2.Response) -> FetchError:
        """A status of which the Hub's headers say no more."""
        model, status = self._uri.root, response.status_code
        if status == httpx2.codes.NOT_FOUND and "X-Error-Code" not in response.headers:
            message = (
                f"{self._api.endpoint} has no {model}, and does not answer as a Hub does (HTTP 404): write a mirror's"
                " whole address in HF_ENDPOINT, with its path, or correct the URI"
            )
            return FetchError(Reason.MODEL_NOT_FOUND, message)
        if status in (httpx2.codes.FORBIDDEN, httpx2.codes.NOT_FOUND):
            message = f"the Hub denies {model} (HTTP {status}): give the token the right to read it"
            return FetchError(Reason.ACCESS_DENIED, message)
        message = f"{self._api.endpoint} answers HTTP {status}: try again later"
        return FetchError(Reason.SOURCE_UNAVAILABLE, message)

    def _too_many(self) -> str:
        endpoint = self._api.endpoint
        if get_token() is not None:
            return f"{endpoint} has had too many requests with this token (HTTP 429): try again later"
        return (
            f"{endpoint} has had too many requests without a token from this address (HTTP 429), and allows more with"
            " one: make a Secret with the key HF_TOKEN, and write its name in the model's secretName"
        )

    @property
    def _page(self) -> str:
        return f"{self._api.endpoint}/{self._uri.root}"
