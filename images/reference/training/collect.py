"""Collect the training text: Python source of the packages in packages.csv, from PyPI.

Downloads the pinned wheels (checked against their sha256), keeps the Python files that are worth
learning from, separates what is held out and writes one compressed file of JSON lines:
{"package", "version", "licence", "path", "split", "text"}, split being "train", "heldout-file" or
"heldout-package".
"""

import argparse
import collections
import csv
import gzip
import hashlib
import json
import lzma
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PLATFORMS = ["manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux_2_27_x86_64",
             "manylinux_2_24_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64",
             "manylinux1_x86_64", "any"]  # fmt: skip
# Copies of other projects (other licences, duplicates) and generated or foreign-language data.
SKIPPED = re.compile(
    r"(^|/)(_?vendor(ed)?|extern(al)?s?|_externals?|_extern|third_?party|lib2to3|locale|unicode_data|"
    r"_array_api_compat|array_api_compat|array_api_extra|substrates|migrations|templates)(/|$)"
)
MIN_CHARS, MAX_CHARS = 400, 100_000
MAX_LINE, MAX_MEAN_LINE = 400, 60
HELD_OUT_ONE_IN = 80
NEAR_DUPLICATE = 0.4


class Package(NamedTuple):
    """One row of packages.csv."""

    name: str
    version: str
    licence: str
    split: str
    sha256: str


class Document(NamedTuple):
    """One source file; `split` is "train", "heldout-file" or "heldout-package"."""

    package: str
    version: str
    licence: str
    path: str
    split: str
    text: str


def packages() -> list[Package]:
    """Return the committed list."""
    with (HERE / "packages.csv").open() as file:
        return [Package(**row) for row in csv.DictReader(file)]


def download(wanted: Iterable[Package], folder: Path) -> None:
    """Fetch each wheel into `folder` with pip, which refuses any other content than the one listed."""
    lines = [f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in wanted]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.writelines(lines)
        requirements.flush()
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes",
                   "--only-binary=:all:", "--python-version=3.11", "--implementation=cp",
                   "--abi=cp311", "--abi=abi3", "--abi=none", f"--dest={folder}",
                   f"--requirement={requirements.name}"]  # fmt: skip
        subprocess.run([*command, *(f"--platform={name}" for name in PLATFORMS)], check=True)


def worth_learning(path: str, text: str) -> bool:
    """Tell whether a file is source that people wrote: no vendored copies, tables or minified text."""
    lines = text.splitlines()
    return (
        not SKIPPED.search(path)
        and MIN_CHARS <= len(text) <= MAX_CHARS
        and max(map(len, lines)) <= MAX_LINE
        and len(text) / len(lines) <= MAX_MEAN_LINE
        and sum(map(text.count, "0123456789")) < 0.15 * len(text)
    )


def without_header(text: str) -> str:
    """Drop the leading comment block: licence headers teach nothing and repeat in thousands of files."""
    text = text.replace("\r\n", "\n").replace("\t", "    ").replace("\f", "")
    lines = text.split("\n")
    start = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#")), 0)
    return "\n".join(lines[start:]).rstrip() + "\n"


def split_of(package: Package, text: str) -> str:
    """Assign a whole package, or one file in HELD_OUT_ONE_IN by its content's hash, to the held-out text."""
    if package.split == "heldout":
        return "heldout-package"
    digest = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
    return "heldout-file" if digest % HELD_OUT_ONE_IN == 0 else "train"


def documents(package: Package, wheel: Path) -> Iterator[Document]:
    """Yield the package's useful files in an order that depends on their content alone."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                text = without_header(archive.read(name).decode("utf-8", "replace"))
                if "\ufffd" not in text and worth_learning(name, text):
                    found.append(Document(*package[:3], name, split_of(package, text), text))
    yield from sorted(found, key=lambda d: hashlib.sha256(d.text.encode()).digest())


def capped(found: Iterable[Document], limit: int) -> Iterator[Document]:
    """Yield documents until `limit` characters of training text are reached."""
    size = 0
    for document in found:
        size += len(document.text)
        if size > limit and document.split == "train":
            return
        yield document


def deduplicated(found: Iterable[Document]) -> list[Document]:
    """Drop files equal to an earlier one but for white space."""
    seen: dict[str, Document] = {}
    for document in found:
        seen.setdefault(" ".join(document.text.split()), document)
    return list(seen.values())


def without_near_duplicates(found: list[Document]) -> list[Document]:
    """Drop held-out files of whose longer lines NEAR_DUPLICATE or more also stand in a training file."""
    known = {hash(line) for d in found if d.split == "train" for line in _long_lines(d.text)}

    def share(document: Document) -> float:
        lines = _long_lines(document.text)
        return sum(hash(line) in known for line in lines) / max(1, len(lines))

    return [d for d in found if d.split == "train" or share(d) < NEAR_DUPLICATE]


def _long_lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if len(line.strip()) >= 20]


def benchmark_lines(path: Path) -> set[str]:
    """Return the telling lines (40 characters or more) of the prompts of a HumanEval file."""
    with gzip.open(path, "rt") as file:
        prompts = [json.loads(line)["prompt"] for line in file]
    return {line.strip() for prompt in prompts for line in prompt.split("\n") if len(line.strip()) >= 40}


def contaminated(document: Document, telling: set[str]) -> bool:
    """Tell whether the file holds a line of a benchmark's prompt."""
    return any(line.strip() in telling for line in document.text.split("\n"))


def collect(wheels: Path, limit: int, benchmark: Path | None) -> list[Document]:
    """Read all wheels and return what is kept."""
    found: list[Document] = []
    for package in packages():
        pattern = re.sub(r"[-_.]+", "[-_.]", package.name)
        matches = [w for w in wheels.iterdir() if re.match(rf"{pattern}-\d", w.name, re.IGNORECASE)]
        if not matches:
            raise SystemExit(f"no wheel of {package.name} in {wheels}: run with --download")
        found += capped(documents(package, matches[0]), limit)
    found = without_near_duplicates(deduplicated(found))
    if benchmark:
        telling = benchmark_lines(benchmark)
        dropped = [d for d in found if contaminated(d, telling)]
        print(f"dropped for lines of {benchmark.name}: {[f'{d.package}/{d.path}' for d in dropped]}")
        found = [d for d in found if d not in dropped]
    return found


def main() -> None:
    """Write the corpus and print its size by split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, required=True, help="folder of the downloaded wheels")
    parser.add_argument("--download", action="store_true", help="download the wheels first (about 550 MB)")
    parser.add_argument("--benchmark", type=Path, help="HumanEval.jsonl.gz: files with its lines are dropped")
    parser.add_argument("--limit", type=int, default=4_000_000, help="characters kept of one package")
    parser.add_argument("--output", type=Path, required=True, help="corpus.jsonl.xz")
    arguments = parser.parse_args()
    if arguments.download:
        download(packages(), arguments.wheels)
    kept = collect(arguments.wheels, arguments.limit, arguments.benchmark)
    sizes: collections.Counter[str] = collections.Counter()
    with lzma.open(arguments.output, "wt", preset=6) as file:
        for document in kept:
            sizes[document.split] += len(document.text)
            file.write(json.dumps(document._asdict()) + "\n")
    print({split: f"{size / 1e6:.1f} MB" for split, size in sizes.items()}, f"{len(kept)} files")


if __name__ == "__main__":
    main()
