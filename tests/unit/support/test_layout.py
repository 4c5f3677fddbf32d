"""What tests share stands in a module of its own: who changes one test changes no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
SHARED = "triton.speculating"
"""What holds for each engine of mode LLMAPI."""


def imported_tests(source: str) -> Iterator[str]:
    """Test modules that a source imports from."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        module = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if module and module[0] == SHARED:
            continue  # tests themselves, which run wherever they are imported
        yield from (name for name in [*names, *module] if name.rpartition(".")[2].startswith("test_"))


@pytest.mark.parametrize(
    "folder", ["unit", "support", "triton", "fetcher", "cluster", "bench", "integration", "keda", "e2e"]
)
def test_no_test_module_is_imported(folder: str) -> None:
    found = {
        str(file.relative_to(TESTS)): names
        for file in (TESTS / folder).rglob("*.py")
        if (names := [name for name in imported_tests(file.read_text()) if name != "aiohttp.test_utils"])
    }
    assert not found, "move what they share to tests/support"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from .test_other import rows", ["test_other"]),
        ("def later():\n    import unit.rollout.test_plan as plan", ["unit.rollout.test_plan"]),
        ("from unit.rollout import test_plan", ["test_plan"]),
        ("import support.latest_one", []),
        ("from support.rows import rows", []),
    ],
)
def test_it_is_seen_however_it_is_written(source: str, found: list[str]) -> None:
    assert list(imported_tests(source)) == found
