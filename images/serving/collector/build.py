"""Compiles a Triton backend: `python build.py SOURCE LIBRARY`, with the C++ compiler of the package `ziglang`.

Made for a C library of 2018, with C++'s own inside: the library runs in every image of Triton's.
"""

import platform
import subprocess
import sys

GLIBC = "2.28"
FLAGS = ["-std=c++17", "-O2", "-s", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]


def build(source: str, library: str) -> None:
    """Compile `source` into `library`. Raises CalledProcessError; the compiler has said why."""
    target = f"{platform.machine()}-linux-gnu.{GLIBC}"
    compiler = [sys.executable, "-m", "ziglang", "c++", "-target", target]
    subprocess.run([*compiler, *FLAGS, "-o", library, source], check=True)


if __name__ == "__main__":
    build(*sys.argv[1:])
