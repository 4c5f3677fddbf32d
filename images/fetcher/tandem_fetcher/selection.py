"""Which files of a model are fetched: those that serving reads, under names that stay inside the cache."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from tandem_fetcher.errors import FetchError, Reason
from tandem_fetcher.source import RemoteFile

DEFAULT_ALLOW = (
    "*.safetensors",
    "*.json",
    "*.model",
    "*.jinja",
    "*.tiktoken",
    "tokenizer*",
    "merges.txt",
    "vocab.txt",
)
# Nothing in the cluster runs what a model brings along.
_NEVER = ("*.py", "*.pyc", "*.so")
# What transformers' Trainer and accelerate keep next to weights to go on training: an engine takes it for weights.
_TRAINING = (
    "training_args.bin",
    "trainer_state.json",
    *(f"{name}*.{kind}" for name in ("optimizer", "scheduler", "sampler", "scaler") for kind in ("bin", "pt")),
    *("rng_state*", "random_states*"),
)
# Some repositories hold the same weights twice, in the publisher's format too, which no engine here reads.
_TWICE = "consolidated*.safetensors"
MAX_FILES = 10_000


def select(files: Sequence[RemoteFile], allow: Sequence[str] = ()) -> list[RemoteFile]:
    """Return the files to fetch, smallest first: small ones show early whether access and digests are right.

    `allow`: patterns instead of DEFAULT_ALLOW; `*` stays inside a folder, so `*.json` takes the top folder's alone.
    Raises FetchError: names that would leave the cache, no weights.
    """
    check_names(files)
    patterns = allow or DEFAULT_ALLOW
    chosen = [file for file in files if _matches(file.name, patterns) and not _never(file.name)]
    chosen = _safetensors_first(chosen)
    if not allow:
        chosen = _once(chosen)
        if not any(file.name.endswith(".safetensors") for file in chosen):
            raise FetchError(Reason.NO_WEIGHTS, _no_weights(files))
    if not chosen:
        raise FetchError(Reason.NO_WEIGHTS, f"no file matches {', '.join(patterns)}: correct the patterns")
    return sorted(chosen, key=lambda file: (file.size, file.name))


def check_names(files: Sequence[RemoteFile]) -> None:
    """Refuse a listing with a name that is no plain relative path, a name twice, or too many."""
    if len(files) > MAX_FILES:
        message = f"the model lists more than {MAX_FILES} files: name the model's own folder"
        raise FetchError(Reason.UNSAFE_FILE_NAME, message)
    seen = set()
    for file in files:
        if not _safe(file.name) or file.name in seen or file.size < 0:
            message = f"the source lists {file.name[:200]!r}, which is no file's name: do not use it"
            raise FetchError(Reason.UNSAFE_FILE_NAME, message)
        seen.add(file.name)


def _safe(name: str) -> bool:
    parts = name.split("/")
    plain = name.isprintable() and "\\" not in name and len(name.encode()) <= 1024
    return plain and all(part not in ("", ".", "..") and len(part.encode()) <= 240 for part in parts)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    parts = name.split("/")
    return any(
        len(wanted) == len(parts) and all(map(fnmatchcase, parts, wanted))
        for wanted in (pattern.split("/") for pattern in patterns)
    )


def _never(name: str) -> bool:
    # Names with a dot are git's own, and the cache's bookkeeping.
    hidden = any(part.startswith(".") for part in name.split("/"))
    training = any(fnmatchcase(name.rpartition("/")[2].lower(), pattern) for pattern in _TRAINING)
    return hidden or training or any(fnmatchcase(name.lower(), pattern) for pattern in _NEVER)


def _safetensors_first(files: list[RemoteFile]) -> list[RemoteFile]:
    """Without the pickles of a folder that has safetensors: engines read one kind."""
    better = {file.name.rpartition("/")[0] for file in files if file.name.endswith(".safetensors")}
    pickled = (".bin", ".pth")
    return [file for file in files if not file.name.endswith(pickled) or file.name.rpartition("/")[0] not in better]


def _once(files: list[RemoteFile]) -> list[RemoteFile]:
    others = [file for file in files if not fnmatchcase(file.name, _TWICE)]
    return others if any(file.name.endswith(".safetensors") for file in others) else files


def _no_weights(files: Sequence[RemoteFile]) -> str:
    pickled = [file.name for file in files if file.name.endswith((".bin", ".pt", ".pth", ".gguf"))]
    has = f"only {pickled[0]!r} and the like" if pickled else "no weights at all"
    advice = "name a revision or a model with *.safetensors, or convert it"
    folders = sorted({file.name.rpartition("/")[0] for file in files if file.name.endswith(".safetensors")} - {""})
    if folders:
        has, advice = f"weights only in {', '.join(folders[:5])}", "add that folder to the URI"
    return f"the model's folder has no *.safetensors ({has}): {advice}"
