"""What is imported is declared: no library comes only because another one needs it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
DISTRIBUTIONS = packages_distributions()
OURS = {path.stem for root in PROJECT["tool"]["ruff"]["src"] for path in (REPOSITORY / root).iterdir()}
# Of the image that the engine is in: Triton's Python backend, TensorRT-LLM or vLLM, and their libraries.
GIVEN = {"triton_python_backend_utils", "tensorrt_llm", "vllm", "torch", "mpi4py", "transformers"}
# In environments of their own, with locks beside the tests: support/environments.py.
APART = {"langchain_core", "langchain_openai", "litellm"}

CODE = [
    # folder, what it may import (groups of pyproject.toml; empty: the project's dependencies)
    ("operator/tandem", [""]),
    ("images/serving", ["serving", "openai"]),
    ("images/fetcher", ["fetcher"]),
    ("images/reference/models", ["serving"]),
    ("images/reference/reference_engine", ["serving", "torch"]),
    ("images/reference/reference_llm", ["serving"]),
    ("images/builder", [""]),
    ("tests/cluster", ["", "cluster"]),
    ("tests", ["", "dev"]),
]


@cache
def declared(group: str) -> set[str]:
    """Names of distributions, of the groups that it includes too."""
    entries = PROJECT["dependency-groups"][group] if group else PROJECT["project"]["dependencies"]
    names = set[str]()
    for entry in entries:
        if isinstance(entry, dict):
            names |= declared(entry["include-group"])
        else:
            names.add(normal(re.split(r"[^A-Za-z0-9._-]", entry, maxsplit=1)[0]))
    return names


def normal(name: str) -> str:
    """As PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(file: Path) -> Iterator[str]:
    """Top-level names that it imports by an import statement."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def undeclared(folder: Path, groups: list[str]) -> dict[str, str]:
    """Names that no group declares, each with a file that imports it."""
    allowed = set[str]().union(*map(declared, groups))
    found = {}
    for file in sorted(folder.rglob("*.py")):
        for name in set(imported(file)) - OURS - GIVEN - APART - {"__future__", *sys.stdlib_module_names}:
            if not allowed & {normal(distribution) for distribution in DISTRIBUTIONS.get(name, [name])}:
                found[name] = str(file.relative_to(folder))
    return found


@pytest.mark.parametrize(("folder", "groups"), CODE, ids=[folder for folder, _ in CODE])
def test_what_is_imported_is_declared(folder: str, groups: list[str]) -> None:
    missing = undeclared(REPOSITORY / folder, groups)
    assert not missing, f"add these to pyproject.toml, {groups}, and run `make lock`"


def test_an_import_that_is_not_declared_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import os, typer\nfrom yarl import URL\ndef later():\n    import kopf.x\n")
    assert undeclared(tmp_path, []) == {"typer": "one.py", "yarl": "one.py", "kopf": "one.py"}
    assert undeclared(tmp_path, [""]).keys() <= {"yarl"}
