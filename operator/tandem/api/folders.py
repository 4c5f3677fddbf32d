"""Where a service's containers find its models. Pure.

Downloads are in the cache volume, in a folder that the fetcher named after their content; the others are
mounted, or in the image.
"""

import re
from collections.abc import Mapping

from tandem.api.roles import TOKENIZERS, Role, references
from tandem.api.types import Scheme, ServiceSpec, Source

CACHE = "/cache"
"""Where the cache volume is mounted."""
SOURCES = "/sources"
"""Below it: claims and image volumes with models, by role."""
_SNAPSHOT = re.compile(r"(?P<repository>(?:.*/)?models--[A-Za-z0-9._-]+)/(?P<snapshot>snapshots/[A-Za-z0-9._/-]+)")
"""A snapshot of a Hugging Face Hub cache: its files are links to ../../blobs, in the folder of its repository."""


def folders(spec: ServiceSpec, fetched: Mapping[Role, str]) -> dict[Role, str]:
    """Folder of each model in the containers. `fetched`: the folders of the downloads.

    Raises:
        KeyError: a download is not in `fetched`.
    """
    return {
        role: fetched[role] if reference.scheme.downloaded else _folder(role, reference)
        for role, reference in references(spec).items()
    }


def tokenizer_folder(model: Role, folders: Mapping[Role, str]) -> str:
    """Folder of the tokenizer of `model`; `folders`: of all `references`."""
    return folders.get(TOKENIZERS[model], folders[model])


def _folder(role: Role, reference: Source) -> str:
    if reference.scheme is Scheme.FILE:
        return reference.uri.removeprefix("file://").rstrip("/")
    inner = in_claim(reference)[1] if reference.scheme is Scheme.PVC else ""
    return f"{SOURCES}/{role}" + (f"/{inner}" if inner else "")


def in_claim(reference: Source) -> tuple[str, str]:
    """Folder of a claim that is mounted, "" for all of it, and the model's folder in that, "" for itself."""
    path = reference.uri.split("://", 1)[1].partition("/")[2].strip("/")
    found = _SNAPSHOT.fullmatch(path)
    return (found["repository"], found["snapshot"]) if found else (path, "")
