"""`pytest --skip-unchanged`: slow modules of tests do not run again before something that they read has changed.

For tests whose result follows from files alone: simulations with a seed, and tests of what only tests and development
use. Once all of a module passed, a file in the cache is named by the digest of all that it reads: itself, what it
imports from this repository, directly or not, each conftest.py above it, and data. It does
not run as long as that digest is the same. With an empty cache, as in CI, all run.

Of data that code reads when it runs, this finds by itself what lies in a package that is imported, and what such a
module names in an expression of a path: `ROOT / "crds"`, `Path(__file__).with_name("data.yaml")`.
"""

import ast
import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Where packages are, in the order of pyproject.toml, `pythonpath`; and what each test depends on.
PACKAGES = [ROOT / path for path in ("operator", "tests", "images", *map(str, (ROOT / "images").glob("*")))]
ALWAYS = (ROOT / "pyproject.toml", ROOT / "tests/requirements.txt", Path(__file__))


def add_option(parser: pytest.Parser) -> None:
    """Add `--skip-unchanged`, once however many folders of tests have it."""
    with contextlib.suppress(ValueError):
        parser.addoption(
            "--skip-unchanged", action="store_true", help="run slow tests only when what they read changed"
        )


def configure(config: pytest.Config, folder: Path, reads: Mapping[str, Sequence[str]]) -> None:
    """Leave out modules below `folder` if `--skip-unchanged` is given. `reads`: by the start of a test module's path
    below it, what its tests read that is not found: files and folders, from the repository's root."""
    if config.option.skip_unchanged:
        config.pluginmanager.register(plugin(config, folder, reads), f"unchanged {folder}")


def plugin(config: pytest.Config, folder: Path, reads: Mapping[str, Sequence[str]]) -> "LeftOut":
    """What `configure` registers."""
    if hasattr(config, "workerinput"):  # of xdist: skips what its controller does, whatever other runs add meanwhile
        return LeftOut(set(config.workerinput["unchanged"]))
    digests = {}
    for module in sorted(folder.rglob("test_*.py")):
        for start, paths in reads.items():
            if str(module.relative_to(folder)).startswith(start):
                digests[str(module.relative_to(ROOT))] = digest(module, paths)
    return Unchanged(digests)


class LeftOut:
    """Leaves out the tests of these modules: paths from the repository's root."""

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect them."""
        left_out = [item for item in items if str(item.path.relative_to(ROOT)) in self.modules]
        items[:] = [item for item in items if str(item.path.relative_to(ROOT)) not in self.modules]
        if left_out:
            config.hook.pytest_deselected(items=left_out)


class Unchanged(LeftOut):
    """Also remembers which modules passed. `digests`: by module."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        super().__init__({module for module, name in digests.items() if (passed() / name).exists()})
        self._digests = digests
        self._ran, self._not_passed = set[str](), set[str]()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist."""
        node.workerinput["unchanged"] = sorted(self.modules.union(node.workerinput.get("unchanged", [])))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep whether each module's tests all pass."""
        module, _, _ = report.nodeid.partition("::")
        (self._ran if report.passed else self._not_passed).add(module)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Remember the modules of which all tests passed, if all of each module ran."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and _whole_modules(session.config):
            passed().mkdir(parents=True, exist_ok=True)
            for module in self._digests.keys() & (self._ran - self._not_passed):
                (passed() / self._digests[module]).touch()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show how many did not run."""
        if self.modules:
            terminalreporter.write_line(
                f"{len(self.modules)} test modules passed before and are unchanged: not run (--skip-unchanged)"
            )


def passed() -> Path:
    """The folder with a file for each module that passed."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tandem/tests"


def digest(module: Path, paths: Iterable[str]) -> str:
    """Hex digits that name all that this test module reads; `paths` of files and folders from the repository's root.

    Raises FileNotFoundError where one of `paths` does not exist.
    """
    made = hashlib.sha256(f"{module.relative_to(ROOT)} {sys.version}".encode())
    for file in sorted(files_read(module, paths)):
        made.update(f"{file.relative_to(ROOT)} {_content(file)}\n".encode())
    return made.hexdigest()


def files_read(module: Path, paths: Iterable[str] = ()) -> set[Path]:
    """What this test module reads, `paths` included. Raises FileNotFoundError."""
    conftests = [folder / "conftest.py" for folder in module.parents if folder.is_relative_to(ROOT)]
    modules = _imported(module).union(*map(_imported, filter(Path.exists, conftests)))
    data = (_beside(file.parent) for file in modules if (file.parent / "__init__.py").exists())
    return modules.union(ALWAYS, *data, *map(_named, modules), *(_files(ROOT / path) for path in paths))


def _imported(module: Path) -> set[Path]:
    """This module and all of the repository's that it imports, directly or not."""
    seen, left = set[Path](), [module]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            left += _imports(file)
    return seen


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


@cache
def _imports(file: Path) -> list[Path]:
    """Modules of the repository that a file imports by an import statement, wherever it stands."""
    names: list[tuple[str, Path | None]] = []
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            names += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1] if node.level else None
            base = node.module or ""
            names += [(base, folder), *((f"{base}.{alias.name}".strip("."), folder) for alias in node.names)]
    return [found for name, folder in names for found in _modules(name, folder)]


def _modules(name: str, folder: Path | None) -> Iterator[Path]:
    """The file of a module and the `__init__.py` of each package above it; none if it is not the repository's."""
    for root in [folder] if folder else PACKAGES:
        path = root
        for part in filter(None, name.split(".")):
            path /= part
            candidates = (path / "__init__.py", path.with_suffix(".py"))
            yield from filter(Path.is_file, candidates)


@cache
def _beside(package: Path) -> frozenset[Path]:
    """Data of a package: files below it that are not Python's, but for those of packages in it."""
    found: set[Path] = set()
    for path in package.iterdir():
        if path.is_file() and path.suffix != ".py":
            found.add(path)
        elif path.is_dir() and path.name != "__pycache__" and not (path / "__init__.py").exists():
            found |= _beside(path)
    return frozenset(found)


@cache
def _named(module: Path) -> frozenset[Path]:
    """Files that a module names in expressions of paths, from its folder or one above it; of folders all of theirs.

    Whole trees of packages are not meant: what is read in them are modules."""
    names = filter(None, map(_name, ast.walk(_tree(module))))
    folders = [folder for folder in module.parents if folder.is_relative_to(ROOT)]
    paths = {(folder / name).resolve() for name in names for folder in folders if (folder / name).exists()}
    inside = {path for path in paths if path.is_relative_to(ROOT) and path not in (ROOT, *PACKAGES)}
    return frozenset(file for path in inside for file in _files(path))


def _name(node: ast.AST) -> str:
    """What is constant of the end of a path: `a/b` of `ROOT / "a" / "b"`; "": it is no path."""
    match node:
        case ast.BinOp(left, ast.Div(), ast.Constant(str(name))):
            return f"{_name(left)}/{name}".lstrip("/")
        case ast.Call(ast.Attribute(attr="with_name" | "joinpath") | ast.Name("Path"), [ast.Constant(str(name)), *_]):
            return name.lstrip("/")
    return ""


@cache
def _content(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path} does not exist: correct what the conftest.py of its tests names")
    return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def _whole_modules(config: pytest.Config) -> bool:
    option = config.option
    return not (option.keyword or option.markexpr or option.maxfail or any("::" in arg for arg in config.args))
