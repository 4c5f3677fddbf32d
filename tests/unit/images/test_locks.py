"""The images' locks: every file hashed, the versions those that the tests ran with."""

import re
import tomllib
from pathlib import Path

import pytest

from builder import inputs, wheels
from builder.inputs import Image

REPOSITORY = Path(__file__).resolve().parents[3]
LOCKS = sorted({path for name in inputs.NAMES for path in inputs.locks(REPOSITORY, Image(name))})

VLLM = "images/vllm-cpu/requirements.txt"
TORCH = "images/reference-torch/requirements.txt"
OWN_HUB = ("huggingface-hub", "hf-xet")
"""transformers takes version 1 of the Hub's client, the fetcher version 2."""


def pins(lock: Path) -> dict[str, str]:
    """Return version by package of a lock."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock.read_text(), re.MULTILINE))


def test_the_images_install_from_these_locks() -> None:
    assert LOCKS == [
        "images/fetcher/requirements.txt",
        "images/operator/build-requirements.txt",
        "images/operator/requirements.txt",
        "images/reference-torch/requirements.txt",
        "images/reference/requirements.txt",
        "images/serving/openai-requirements.txt",
        "images/serving/requirements.txt",
        "images/vllm-cpu/requirements.txt",
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_versions_are_those_of_the_tests(lock: str) -> None:
    """Of the image with torch, of what the tests have too: torch is not installed there. vLLM decides its own, but
    for what Triton's stub needs."""
    tested = pins(REPOSITORY / "tests/requirements.txt")
    shipped = pins(REPOSITORY / lock)
    assert shipped
    if lock == TORCH:
        shipped = {name: version for name, version in shipped.items() if name in tested and name not in OWN_HUB}
        assert {"numpy", "safetensors", "tokenizers"} <= shipped.keys()
    if lock == VLLM:
        shipped = {name: shipped[name] for name in ("numpy", "nvidia-pytriton")}
    assert shipped.items() <= tested.items(), "run `make lock`: images and tests must have the same versions"


def test_the_image_with_torch_has_all_that_the_torch_backend_imports() -> None:
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]["torch"]
    needed = {re.split(r"[<>=]", each)[0] for each in declared}
    code = (REPOSITORY / "images/reference/reference_engine/torch_backend").glob("*.py")
    imported = {name for path in code for name in re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.M)}
    assert imported & {"torch", "transformers", "triton"} <= needed
    assert needed <= pins(REPOSITORY / TORCH).keys(), "run `make lock`"


def test_the_image_with_torch_has_cudas_libraries_for_its_torch() -> None:
    """By the names of the wheels that torch loads when it is imported, GPU or not."""
    shipped = pins(REPOSITORY / TORCH)
    assert {"nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"} <= shipped.keys()


def test_what_both_locks_of_the_image_with_torch_pin_is_the_same() -> None:
    """pip refuses two versions of a package."""
    one, other = pins(REPOSITORY / TORCH), pins(REPOSITORY / "images/reference/requirements.txt")
    both = one.keys() & other.keys()
    assert {"numpy", "safetensors", "tokenizers"} <= both
    assert {name: one[name] for name in both} == {name: other[name] for name in both}


def test_the_operators_image_has_all_that_the_operator_needs() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[\[><=]", each)[0] for each in project["dependencies"]}
    assert needed <= pins(REPOSITORY / "images/operator/requirements.txt").keys(), "run `make lock`"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes(lock: str) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", (REPOSITORY / lock).read_text().strip())
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


OF_TESTS = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "tests").rglob("*requirements.txt")}
EVERY_LOCK = sorted({*LOCKS, *OF_TESTS})
PIN = re.compile(r"[a-z0-9][a-z0-9.-]*(\[[a-z0-9,-]+\])?==[0-9][^\s;]*( ; .+?)?( \\)?")


@pytest.mark.parametrize("lock", EVERY_LOCK)
def test_nothing_is_installed_but_releases_of_the_index(lock: str) -> None:
    """No address, no repository, no other index, no range of versions. Of Go's modules, Go itself sees to it."""
    lines = [line for line in (REPOSITORY / lock).read_text().splitlines() if line and not line.startswith(" ")]
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


def test_wheels_are_fetched_for_the_images_python_whichever_python_asks() -> None:
    command = wheels.pip_command([Path("a.txt"), Path("b.txt")], Path("out"), "x86_64")
    for option in ("--python-version=3.11", "--abi=cp311", "--require-hashes", "--only-binary=:all:", "--no-deps"):
        assert option in command
    platforms = [word for word in command if word.startswith("--platform=")]
    assert "--platform=manylinux2014_x86_64" in platforms, "protobuf's compiled wheel has this tag alone"
    assert "--platform=manylinux_2_35_x86_64" in platforms, "nvidia-pytriton's wheel has this tag"
    assert "--platform=manylinux_2_37_x86_64" not in platforms, "Debian 12's C library is older"
    assert command[-2:] == ["--requirement=a.txt", "--requirement=b.txt"]


def test_the_wheel_folder_follows_the_locks(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text("a==1")
    before = wheels.folder(tmp_path, [lock])
    assert wheels.folder(tmp_path, [lock]) == before
    lock.write_text("a==2")
    assert wheels.folder(tmp_path, [lock]) != before
