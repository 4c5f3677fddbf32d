"""The site has all pages: each is reached from README, and stands in the navigation. README counts steps rightly."""

import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import yaml

from .pages import PAGES, ROOT, name


def navigated(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        (inner,) = entry.values()
        yield from navigated(inner) if isinstance(inner, list) else [inner]


def test_each_page_is_reached_and_in_the_navigation() -> None:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs/site/pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reached = {name(page) for page in module.reached(ROOT / "README.md") if page.suffix == ".md"}
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert reached == set(navigated(nav)) == {name(page) for page in PAGES}


def test_readme_counts_the_steps_to_a_large_model() -> None:
    steps = re.findall(r"^## Step (\d+): ", (ROOT / "docs/tutorials/llama-70b.md").read_text(), re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, len(steps) + 1))
    assert f"in {len(steps)} steps](docs/tutorials/llama-70b.md)" in (ROOT / "README.md").read_text()
    assert len(steps) <= 7
