"""Empty shared libraries in the place of NVIDIA's, for torch on a machine without a GPU.

PyPI has torch with CUDA only. Its libraries ask for 13 of NVIDIA's, 4 GB, which a CPU never calls. This writes
libraries of the same names with the symbols, and their versions, that torch's loader looks up; each does nothing.

    stub_libraries.py SITE_PACKAGES

Needs gcc, and `nm` and `readelf` of binutils.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

PRESENT = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|gomp|cudart|cuda))[-.]")
"""Of the system, of torch's wheel, of nvidia-cuda-runtime; libcuda is the driver's, opened only where it is used."""
NVIDIA = re.compile(r"cu[A-Z]|cusparseLt|curand|nccl")
"""Symbols without a version, of libraries that have none."""


class Symbol(NamedTuple):
    """`library`, `version`: where it is looked up; empty: in any."""

    name: str
    library: str
    version: str


def _run(*command: str | Path) -> str:
    return subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True).stdout


def needed(library: Path) -> list[str]:
    """Names of the libraries that a library asks for."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _run("readelf", "-d", library))


def versions(library: Path) -> dict[str, str]:
    """Versions of symbols that a library asks for, with the library that must have each."""
    found, file = dict[str, str](), ""
    for line in _run("readelf", "-VW", library).splitlines():
        if match := re.search(r"File: (\S+)", line):
            file = match[1]
        elif file and (match := re.search(r"Name: (\S+)  Flags", line)):
            found[match[1]] = file
    return found


def undefined(library: Path) -> set[Symbol]:
    """Symbols that a library does not have itself."""
    files, found = versions(library), set[Symbol]()
    for line in _run("nm", "-D", "--undefined-only", "--with-symbol-versions", library).splitlines():
        kind, symbol = line.split()
        name, _, version = symbol.partition("@")
        if kind == "U":
            found.add(Symbol(name, files.get(version, ""), version))
    return found


def write(name: str, symbols: set[Symbol], folder: Path) -> None:
    """Compile one library."""
    nodes = defaultdict[str, list[str]](list)
    for symbol in sorted(symbols):
        nodes[symbol.version].append(symbol.name)
    nodes.pop("", None)
    with tempfile.TemporaryDirectory() as made:
        source, script = Path(made) / "stub.c", Path(made) / "stub.map"
        source.write_text("".join(f"void {each.name}(void) {{}}\n" for each in sorted(symbols)))
        script.write_text("".join(f"{each} {{ global: {'; '.join(names)}; }};\n" for each, names in nodes.items()))
        command = ["gcc", "-shared", "-nostdlib", "-w", "-fno-builtin", f"-Wl,-soname,{name}", "-o", folder / name]
        _run(*command, source, *([f"-Wl,--version-script={script}"] if nodes else []))


def main(site_packages: Path) -> None:
    """Write what is missing next to torch's own libraries."""
    folder = site_packages / "torch/lib"
    libraries = sorted([*folder.glob("libtorch*.so"), *folder.glob("libc10*.so")])
    asked = set[Symbol]().union(*(undefined(each) for each in libraries))
    names = {each for library in libraries for each in needed(library)} - {each.name for each in folder.iterdir()}
    missing = sorted(name for name in names if not PRESENT.match(name))
    plain = {each for each in asked if not each.library and NVIDIA.match(each.name)}
    for name in missing:
        write(name, {each for each in asked if each.library == name} or plain, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
