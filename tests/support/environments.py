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

    Raises subprocess.CalledProcessError: a package cannot be had.
    """
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:8]
    folder = binaries.cache_dir().parent / f"{lock.stem.removesuffix('-requirements')}-{digest}"
    uv = Path(sys.executable).with_name("uv")
    made = folder / "bin" / "python"
    with locked(folder.with_name(f"{folder.name}.lock")):  # each process that runs tests wants it
        if not (folder / ".installed").exists():
            subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, folder], check=True)
            install = ["pip", "sync", "-q", "--system-certs", "--python", str(made), "--require-hashes"]
            subprocess.run([uv, *install, lock], check=True)
            (folder / ".installed").touch()
    return made


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(python(Path(argument)))
