"""Folders of a Hugging Face Hub cache, named as a model: what of it is the model.

    hub/models--ORG--NAME/{refs/main, blobs/HASH, snapshots/COMMIT/FILE -> ../../blobs/HASH}

https://huggingface.co/docs/huggingface_hub/guides/manage-cache. Of a claim the whole repository is mounted where the
uri names a snapshot (operator: `render.v1.sources`), so that its links lead somewhere.
"""

from __future__ import annotations

from pathlib import Path

from tandem_serving.checkpoint import CheckpointError

_MOST_NAMED = 3
_READ = (".json", ".safetensors", ".bin", ".model", ".jinja")
"""Names of files that serving reads end so."""


def check(role: str, folder: Path) -> None:
    """Raises CheckpointError for a folder around the model's, and for links that lead out of what is mounted."""
    if not (folder / "config.json").exists() and (found := _snapshots(folder)):
        more = ", ..." if len(found) > _MOST_NAMED else ""
        named = ", ".join(found[:_MOST_NAMED])
        raise CheckpointError(f"{role}: {folder} is a Hub cache: add one of its snapshots to the uri: /{named}{more}")
    for path in sorted(folder.iterdir()):
        if path.suffix in _READ and path.is_symlink() and not path.exists():
            raise CheckpointError(
                f"{role}: {path} is a link to {path.readlink()}, which is not in what is mounted: name a folder with"
                " the files, or the snapshot in a Hub cache (.../models--ORG--NAME/snapshots/COMMIT)"
            )


def _snapshots(folder: Path) -> list[str]:
    """Snapshots below a repository of the cache, or the cache, by their paths from there; that of `main` first."""
    repositories = [folder] if (folder / "snapshots").is_dir() else sorted(folder.glob("models--*"))
    found = []
    for repository in repositories:
        main = _commit(repository)
        for path in sorted(repository.glob("snapshots/*"), key=lambda each: (each.name != main, each.name)):
            found.append(str(path.relative_to(folder)))
    return found


def _commit(repository: Path) -> str:
    try:
        return (repository / "refs/main").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
