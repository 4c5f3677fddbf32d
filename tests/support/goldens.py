"""Golden files: what the code makes today, for people to read as a difference. `make goldens` writes them again."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tandem import names
from tandem.api.wire import Object
from tandem.cli.render import Dumper


def check(folder: Path, files: Mapping[str, str]) -> None:
    """`folder` holds these files, by their paths in it, and no others."""
    if os.environ.get("UPDATE_GOLDENS"):
        _write(folder, files)
    golden = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert golden == files.keys(), "run `make goldens` and read the difference"
    for name, text in files.items():
        assert text == (folder / name).read_bytes().decode(), f"{name}: run `make goldens` and read the difference"


def manifests(children: Iterable[Object]) -> dict[str, str]:
    """Children as files: each manifest, each file of the revision's ConfigMap, and the order in which they come.

    The names hold no digest, so that a file stays the same file when the digest of its content changes.
    """
    files, seen, order = dict[str, str](), Counter[str](), list[str]()
    for child in children:
        component = child["metadata"]["labels"].get(names.LABEL_COMPONENT, "")
        kind = str(child["kind"]).lower() + (f"-{component}" if child["kind"] == "Job" else "")
        seen[kind] += 1
        name = kind if seen[kind] == 1 else f"{kind}-{seen[kind]}"
        order.append(name)
        data = child.get("data", {}) if component == names.REVISION else {}
        files |= {f"revision/{file}": text for file, text in data.items()}
        files[f"{name}.yaml"] = text_of({**child, "data": sorted(data)} if data else child)
    return {**files, "order.txt": "".join(f"{name}\n" for name in order)}


def text_of(document: Any) -> str:
    """YAML as `tandem render` writes it."""
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, width=110)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
