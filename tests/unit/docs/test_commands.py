"""Commands of the pages that need no cluster do what the pages show."""

import os
import sys
from pathlib import Path

import pytest

from support.console import marked, matches, run

from .pages import PAGES, ROOT, name

OFFLINE = {page: steps for page in PAGES if (steps := marked(page.read_text(), "offline"))}


@pytest.mark.parametrize("page", OFFLINE, ids=name)
def test_commands_do_what_the_page_shows(page: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    steps = OFFLINE[page]
    results = run(steps, ROOT, {"PATH": path, "PYTHONPATH": str(ROOT / "operator")}, 300)
    for result in results:
        assert result.status == 0, result
        assert matches(result.step.shown, result.printed), result
    assert len(results) >= len(steps)
