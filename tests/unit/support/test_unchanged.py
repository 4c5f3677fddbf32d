from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import unchanged

pytestmark = pytest.mark.nightly

FILES = {
    "pyproject.toml": "",
    "tests/requirements.txt": "numpy==1",
    "tests/conftest.py": "",
    "tests/unit/conftest.py": "import first",
    "tests/unit/one/test_it.py": "from first.second import third\nfrom .near import x",
    "tests/unit/one/near.py": "",
    "tests/unit/one/other.py": "",
    "operator/first/__init__.py": "",
    "operator/first/second/__init__.py": "def later():\n    import json, first.fourth as fourth",
    "operator/first/second/third.py": "ROOT / 'crds'; HERE / 'charts' / 'own'; P(__file__).with_name('by_name')",
    "operator/first/fourth.py": "",
    "operator/first/fifth.py": "",
    "operator/first/data.yaml": "",
    "operator/first/templates/deep/some.j2": "",
    "operator/first/sixth/__init__.py": "",
    "operator/first/sixth/data.yaml": "",
    "operator/first/second/by_name/model": "",
    "crds/some.yaml": "",
    "charts/own/values.yaml": "",
    "docs/page.md": "",
    "data/file": "",
}
MODULE = "tests/unit/one/test_it.py"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(unchanged, "ROOT", tmp_path)
    monkeypatch.setattr(unchanged, "PACKAGES", [tmp_path / "operator", tmp_path / "tests"])
    monkeypatch.setattr(unchanged, "ALWAYS", (tmp_path / "pyproject.toml", tmp_path / "tests/requirements.txt"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def forget() -> None:
    """What was read of files, which may have changed."""
    for known in (unchanged._tree, unchanged._imports, unchanged._content, unchanged._beside, unchanged._named):
        known.cache_clear()


def digest(root: Path) -> str:
    forget()
    return unchanged.digest(root / MODULE, ["data"])


READ = [
    (MODULE, True, "the test itself"),
    ("operator/first/second/third.py", True, "a module that it imports"),
    ("operator/first/second/__init__.py", True, "the package of that"),
    ("operator/first/fourth.py", True, "what is imported by that, in a function"),
    ("tests/unit/one/near.py", True, "a relative import"),
    ("tests/unit/conftest.py", True, "fixtures"),
    ("tests/requirements.txt", True, "versions of libraries"),
    ("data/file", True, "data that is named"),
    ("operator/first/data.yaml", True, "data of a package that is imported"),
    ("operator/first/templates/deep/some.j2", True, "in a folder of it"),
    ("crds/some.yaml", True, "in a folder that such a module names"),
    ("charts/own/values.yaml", True, "part by part"),
    ("operator/first/second/by_name/model", True, "beside it"),
    ("operator/first/sixth/data.yaml", False, "nothing imports that package"),
    ("docs/page.md", False, "nothing names it"),
    ("operator/first/fifth.py", False, "nothing imports it"),
    ("tests/unit/one/other.py", False, "nothing imports it"),
]


@pytest.mark.parametrize(("file", "is_read", "reason"), READ, ids=[file for file, *_ in READ])
def test_the_digest_is_of_what_is_read(root: Path, file: str, is_read: bool, reason: str) -> None:
    before = digest(root)
    assert digest(root) == before
    (root / file).write_text((root / file).read_text() + "\n")
    assert (digest(root) != before) == is_read, reason


TESTS = "tests/unit"
OURS = [
    ("simulation/test_interleavings.py", "operator/tandem/profiles.yaml"),
    ("simulation/test_interleavings.py", "operator/tandem/render/v1/repository/tensorrt_llm_bls/config.pbtxt.j2"),
    ("simulation/test_interleavings.py", "tests/data/input/draft-target.yaml"),
    ("../triton/test_upstream_clients.py", "operator/tandem/profiles.yaml"),
    ("../triton/test_upstream_clients.py", "operator/tandem/render/v1/repository/_engine.pbtxt.j2"),
    ("local_cluster/test_audit_log.py", "crds/speculativeinferenceservices.yaml"),
    ("chart/test_objects.py", "charts/tandem/values.yaml"),
]


@pytest.mark.parametrize(("module", "file"), OURS)
def test_what_our_tests_read_is_found(module: str, file: str) -> None:
    """In this repository, without a word of any conftest.py."""
    assert unchanged.ROOT / file in unchanged.files_read((unchanged.ROOT / TESTS / module).resolve())


def test_a_file_that_is_added_to_a_folder_counts(root: Path) -> None:
    before = digest(root)
    (root / "data/more").touch()
    assert digest(root) != before


def test_data_that_does_not_exist_is_an_error(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist: correct"):
        unchanged.digest(root / MODULE, ["no/such"])


def run(root: Path, *outcomes: bool, **options: Any) -> bool:
    """Whether a run in which the module's tests pass, or do not, left it out; it remembers those that passed."""
    option = SimpleNamespace(**{"keyword": "", "markexpr": "", "maxfail": 0, **options.pop("option", {})})
    config: Any = SimpleNamespace(option=option, args=["tests/unit"], **options)
    made = unchanged.plugin(config, root / "tests/unit", {"one/": []})
    assert isinstance(made, unchanged.Unchanged)
    for outcome in outcomes:
        report: Any = SimpleNamespace(nodeid=f"{MODULE}::test", passed=outcome)
        made.pytest_runtest_logreport(report)
    session: Any = SimpleNamespace(config=config)
    made.pytest_sessionfinish(session, 0 if all(outcomes) else 1)
    return MODULE in made.modules


def test_what_passed_is_left_out_until_it_changes(root: Path) -> None:
    assert not run(root, True, True)
    assert run(root)
    (root / MODULE).write_text("pass")
    forget()
    assert not run(root)


NOT_REMEMBERED = [
    ((True, False), {}, "one failed, or was skipped"),
    ((), {}, "none ran"),
    ((True,), {"option": {"keyword": "some"}}, "only some ran"),
    ((True,), {"option": {"maxfail": 1}}, "it may have stopped early"),
]


@pytest.mark.parametrize(("outcomes", "options", "reason"), NOT_REMEMBERED, ids=[why for *_, why in NOT_REMEMBERED])
def test_only_whole_modules_that_passed_are_remembered(
    root: Path, outcomes: tuple[bool, ...], options: dict[str, Any], reason: str
) -> None:
    run(root, *outcomes, **options)
    assert not run(root), reason


def test_workers_leave_out_what_their_controller_does(root: Path) -> None:
    config: Any = SimpleNamespace(workerinput={"unchanged": [MODULE]})
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    items: list[Any] = [SimpleNamespace(path=root / path) for path in (MODULE, "tests/unit/two/test_other.py")]
    config.hook = hook
    unchanged.plugin(config, root, {}).pytest_collection_modifyitems(config, items)
    assert [item.path.name for item in items] == ["test_other.py"]
