"""Environments for programs whose libraries do not go with those of the tests: one a lock, made when it is needed.

`python -m support.environments LOCK...` makes them before tests whose time is limited.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from cluster import binaries
from cluster.state import locked


def python(lock: Path) -> Path:
    """Python of the lock's own environment, in the cache; programs that came with it are in the same folder.

    A script install.sh beside a lock finishes it: it gets the folder of the packages, and runs again where it or what
    is beside it has changed. Raises subprocess.CalledProcessError: a package cannot be had, or the script failed.
    """
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:8]
    name = lock.parent.name if lock.stem == "requirements" else lock.stem.removesuffix("-requirements")
    folder = binaries.cache_dir().parent / f"{name}-{digest}"
    made, installed = folder / "bin" / "python", folder / ".installed"
    with locked(folder.with_name(f"{folder.name}.lock")):  # each process that runs tests wants it
        if not installed.exists():
            uv = Path(sys.executable).with_name("uv")
            subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, folder], check=True)
            install = ["pip", "sync", "-q", "--compile-bytecode", "--system-certs", "--python", str(made)]
            subprocess.run([uv, *install, "--require-hashes", lock], check=True)
            installed.touch()
        script = lock.with_name("install.sh")
        if script.exists() and installed.read_text() != (texts := _digest(script.parent)):
            subprocess.run(["sh", script, packages(made)], check=True)
            installed.write_text(texts)
    return made


def _digest(folder: Path) -> str:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def packages(python: Path) -> Path:
    """The folder of an environment's packages."""
    return next(python.parents[1].glob("lib/python*/site-packages"))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(python(Path(argument)))
