"""`kubectl tandem`: the command with its libraries as one archive for each platform, and krew's manifest of them.

krew unpacks an archive and puts one program of it into PATH, so the libraries come along; Python does not. Wheels are
those that the operator's image has, checked against its lock. Manifest: https://krew.sigs.k8s.io/docs/developer-guide/.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builder.errors import BuildError
from release import tools

PROGRAM = "kubectl-tandem"
PYTHONS = ("3.12", "3.11")
"""Versions of Python that it runs with, the first choice first: those that the locks have wheels for."""
_LINUX = (*(f"manylinux_2_{minor}" for minor in range(28, 4, -1)), "manylinux2014", "manylinux2010", "manylinux1")
_TAGS = {
    "linux/amd64": tuple(f"{tag}_x86_64" for tag in _LINUX),
    "linux/arm64": tuple(f"{tag}_aarch64" for tag in _LINUX),
    "darwin/arm64": tuple(
        f"macosx_{major}_0_{kind}" for major in (14, 13, 12, 11) for kind in ("arm64", "universal2")
    ),
}
PLATFORMS = tuple(_TAGS)
"""Platforms for which the locks have wheels."""
LAUNCHER = f"""#!/bin/sh
# `kubectl tandem`: Tandem's command with its libraries, by the newest Python that there are libraries for.
here=$(dirname "$(readlink -f "$0")")
for version in {" ".join(PYTHONS)}; do
  # Tried, not looked up: what is in PATH may be a version manager's, of a Python that is not chosen.
  if "python$version" -c "" 2> /dev/null; then
    PYTHONPATH="$here/lib/python$version:$here/lib/any" exec "python$version" -m tandem "$@"
  fi
done
echo "kubectl tandem needs Python: install python{" or python".join(PYTHONS)}" >&2
exit 1
"""


def archive(root: Path, platform: str, folder: Path) -> Path:
    """Write the plugin's archive for one platform into ``folder`` and return its path.

    Raises BuildError for a platform without wheels, or when pip fails.
    """
    if platform not in _TAGS:
        raise BuildError(f"there are no wheels for {platform}: write {', '.join(PLATFORMS)}")
    path = folder / f"{PROGRAM}-{platform.replace('/', '-')}.tar.gz"
    with tempfile.TemporaryDirectory(dir=folder) as made:
        content = Path(made)
        shutil.copytree(
            root / "operator/tandem", content / "lib/any/tandem", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.copyfile(root / "LICENSE", content / "LICENSE")
        for python in PYTHONS:
            _unpack_wheels(root / "images/operator/requirements.txt", platform, python, content / "lib")
        (content / PROGRAM).write_text(LAUNCHER, encoding="utf-8")
        (content / PROGRAM).chmod(0o755)
        _pack(content, path)
    return path


def manifest(version: str, url: str, sums: Mapping[str, str]) -> dict[str, Any]:
    """Return krew's manifest. ``url``: the folder with the archives; ``sums``: SHA-256 of each by platform."""
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tandem"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Speculative decoding on Triton: status, completions, benchmarks",
            "description": "The command `tandem` for SpeculativeInferenceServices: see `kubectl tandem --help`.",
            "caveats": f"Needs Python {' or '.join(PYTHONS)} in PATH.",
            "platforms": [
                {
                    "selector": {"matchLabels": dict(zip(("os", "arch"), platform.split("/"), strict=True))},
                    "uri": f"{url}/{PROGRAM}-{platform.replace('/', '-')}.tar.gz",
                    "sha256": digest,
                    "bin": PROGRAM,
                }
                for platform, digest in sums.items()
            ],
        },
    }


def _unpack_wheels(lock: Path, platform: str, python: str, lib: Path) -> None:
    """Unpack the locked wheels into ``lib``: those for every Python and platform once, the others for this one."""
    with tempfile.TemporaryDirectory() as fetched:
        tools.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
                *("--require-hashes", "--only-binary=:all:", f"--dest={fetched}", f"--requirement={lock}"),
                *(f"--python-version={python}", "--implementation=cp"),
                *(f"--abi={abi}" for abi in (f"cp{python.replace('.', '')}", "abi3", "none")),
                *(f"--platform={tag}" for tag in _TAGS[platform]),
            ]
        )
        for wheel in sorted(Path(fetched).glob("*.whl")):
            target = lib / ("any" if wheel.stem.endswith("-none-any") else f"python{python}")
            with zipfile.ZipFile(wheel) as content:
                content.extractall(target)


def _pack(content: Path, path: Path) -> None:
    """Write an archive that depends on the files alone: no times, no owners, in order."""
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for found in sorted(content.rglob("*")):
            tar.add(found, arcname=str(found.relative_to(content)), recursive=False, filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
