"""`tandem render --diff`: services of other files, or of the same files at another revision in Git."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tandem.cli import changes
from tandem.cli.manifests import SUFFIXES, ManifestError, ManifestSource, accepted, judge_sources, sources
from tandem.cli.render import Service, children
from tandem.settings import Settings


def rollout(files: Sequence[Path], base: Sequence[ManifestSource], settings: Settings) -> tuple[str, list[str]]:
    """Diff of the children of the base's services and of those in `files`, and a line for each service.

    Raises:
        ManifestError: what is wrong with any service.
    """
    now = accepted(judge_sources(sources(files), settings))
    before = accepted(judge_sources(base, settings)) if base else []
    here, there = _by_name(before, settings), _by_name(now, settings)
    return changes.diff(here, there), changes.summaries(here, there)


def _by_name(services: Iterable[Service], settings: Settings) -> dict[str, changes.Children]:
    return {f"{service.namespace}/{service.name}": children(service, settings) for service, _ in services}


def at_revision(files: Iterable[Path], revision: str) -> list[ManifestSource]:
    """The files, and those of folders, as they are at a Git revision; those that are not there are left out.

    Raises:
        ManifestError: there is no Git, no repository, or no such revision.
    """
    return [source for file in files for source in _at(file, revision)]


def _at(file: Path, revision: str) -> list[ManifestSource]:
    if str(file) == "-":
        raise ManifestError("standard input has no revision in Git: give a file, or --diff FILE")
    folder = file.resolve() if file.is_dir() else file.resolve().parent
    if folder == file.resolve():
        listed = _git(folder, "ls-tree", "--name-only", revision, "./").splitlines()
        names = [name for name in listed if name.endswith(SUFFIXES)]
    else:
        names = _git(folder, "ls-tree", "--name-only", revision, f"./{file.name}").splitlines()
    return [
        ManifestSource(f"{revision}:{file / name if file.is_dir() else file}", text, listed=file.is_dir())
        for name in names
        for text in (_git(folder, "show", f"{revision}:./{name}"),)
    ]


def _git(folder: Path, *arguments: str) -> str:
    try:
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ManifestError(f"git cannot be run ({error.strerror}): install it, or give --diff FILE") from error
    if done.returncode:
        raise ManifestError(f"git: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'it failed'}")
    return done.stdout
