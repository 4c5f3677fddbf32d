"""Empty shared libraries in the place of CUDA's, for torch on a machine without a GPU.

PyPI has torch with CUDA only. Its libraries ask for NVIDIA's, 4 GB, and half of them are kernels for GPUs, 520 MB:
a CPU calls neither. This writes libraries of the same names with the symbols, and their versions, that the loader
looks up; each does nothing.

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
KERNELS = ("libtorch_cuda.so", "libtorch_cuda_linalg.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so")
"""Of torch, for GPUs. The first is asked for by name, the others are opened where they are used."""
BEGIN = """
extern void *_ZTVN10__cxxabiv117__class_type_infoE[];
static char nothing[4096] __attribute__((aligned(4096)));
static void *nothing_done(void) { return nothing; }
static void *type[] = {_ZTVN10__cxxabiv117__class_type_infoE + 2, "nothing"};
static void *table[66] = {0, type, [2 ... 65] = nothing_done};
"""
"""Of C. Functions return the address of `nothing`: false as a truth value, and writable as a reference. An object of
C++ begins with the address of its table of functions; the object's type stands before that address."""


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


def defined(library: Path) -> set[str]:
    """Names of the symbols that a library has."""
    return {line.split()[2].partition("@")[0] for line in _run("nm", "-D", "--defined-only", library).splitlines()}


def stub(name: str) -> str:
    """C of a symbol: a function; of C++ also a type, a table of functions, a constructor."""
    if name.startswith("_ZTI"):
        return f'void *{name}[] = {{_ZTVN10__cxxabiv117__class_type_infoE + 2, "{name.removeprefix("_ZTI")}"}};\n'
    if name.startswith("_ZTV"):
        return f"void *{name}[66] = {{0, type, [2 ... 65] = nothing_done}};\n"
    if re.match(r"_ZN.*C[12]E", name):
        return f"void {name}(void **made) {{ *made = table + 2; }}\n"
    return f"void *{name}(void) {{ return nothing; }}\n"


def write(name: str, symbols: set[Symbol], folder: Path) -> None:
    """Compile one library."""
    nodes = defaultdict[str, list[str]](list)
    for symbol in sorted(symbols):
        nodes[symbol.version].append(symbol.name)
    nodes.pop("", None)
    with tempfile.TemporaryDirectory() as made:
        source, script = Path(made) / "stub.c", Path(made) / "stub.map"
        source.write_text(BEGIN + "".join(stub(each.name) for each in sorted(symbols)))
        script.write_text("".join(f"{each} {{ global: {'; '.join(names)}; }};\n" for each, names in nodes.items()))
        command = ["gcc", "-shared", "-nostdlib", "-w", "-fno-builtin", f"-Wl,-soname,{name}", "-o", folder / name]
        _run(*command, source, *([f"-Wl,--version-script={script}"] if nodes else []))


def remove_kernels(folder: Path) -> set[str]:
    """Remove torch's libraries for GPUs, and return the names of their symbols."""
    found = set[str]()
    for library in (folder / name for name in KERNELS):
        if library.exists():
            found |= defined(library)
            library.unlink()
    return found


def main(site_packages: Path) -> None:
    """Write what is missing next to torch's own libraries."""
    folder = site_packages / "torch/lib"
    kernels = remove_kernels(folder)
    libraries = sorted([*folder.glob("libtorch*.so"), *folder.glob("libc10*.so")])
    asked = set[Symbol]().union(*(undefined(each) for each in libraries))
    kept = set[str]().union(*(defined(each) for each in libraries))
    names = {each for library in libraries for each in needed(library)} - {each.name for each in folder.iterdir()}
    plain = {each for each in asked if not each.library and NVIDIA.match(each.name)}
    gone = kernels - kept
    own = {each for each in asked if each.name in gone}
    for name in sorted(name for name in names if not PRESENT.match(name)):
        versioned = {each for each in asked if each.library == name}
        write(name, own if name == KERNELS[0] else versioned or plain, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
