"""The site has all pages: each is reached from README, and stands in the navigation."""

import importlib.util
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
