"""Where a model is: `hf://org/name[/folder]`, `s3://bucket/prefix`, `gs://bucket/prefix`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tandem_fetcher.errors import FetchError, Reason

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHARACTER = "[A-Za-z0-9._=+@:,~()!&-]"
_PART = re.compile(f"{_CHARACTER}(({_CHARACTER}| )*{_CHARACTER})?")
"""As in the resource's definition (operator/tandem/api/types/model.py), of which a test has the same rows."""
_FORMS = "hf://org/name[/folder], s3://bucket/prefix or gs://bucket/prefix"


@dataclass(frozen=True)
class ModelUri:
    """A parsed URI. `root`: the repository (`org/name`) or the bucket; `folder`: the path in it, "" for all of it."""

    scheme: str
    root: str
    folder: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.root}" + (f"/{self.folder}" if self.folder else "")


def parse(text: str) -> ModelUri:
    """Parse a URI; equal places give equal values. Raises FetchError (InvalidUri)."""
    scheme, _, rest = text.partition("://")
    if scheme not in ("hf", "s3", "gs"):
        raise _invalid(text, f"write {_FORMS}; models of other schemes are mounted, not fetched")
    parts = rest.removesuffix("/").split("/")
    length = 2 if scheme == "hf" else 1
    if scheme == "hf" and any("@" in part for part in parts[:length]):
        raise _invalid(text, "write the revision in `revision`, not in the URI")
    if len(parts) < length:
        raise _invalid(text, f"write {_FORMS}")
    if not all(map(_NAME.fullmatch, parts[:length])):
        raise _invalid(text, "names of repositories and buckets are letters, digits and . _ -, the first no sign")
    if any(not _PART.fullmatch(part) or part in (".", "..") for part in parts[length:]):
        raise _invalid(text, "parts of a path are letters, digits, . _ - = + @ : , ~ ( ) ! & and spaces between")
    return ModelUri(scheme, "/".join(parts[:length]), "/".join(parts[length:]))


def _invalid(text: str, advice: str) -> FetchError:
    return FetchError(Reason.INVALID_URI, f"{text[:200]!r} is no URI of a model: {advice}")
