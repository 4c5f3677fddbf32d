"""The real API server takes every example."""

from pathlib import Path

import pytest

from .conftest import Namespace

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_admitted(namespace: Namespace, path: Path) -> None:
    namespace.run("apply", "--dry-run=server", "-f", str(path))
