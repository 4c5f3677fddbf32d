"""The pages that the site is made of, in build/pages: README, what it refers to, what that refers to, and so on.

Markdown and the files that it names keep their places, so that links between them lead on as in the repository.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build/pages"
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?\)")


def targets(page: Path) -> Iterator[Path]:
    """Files of the repository that a page refers to."""
    for _, link, _ in LINK.findall(page.read_text()):
        target = (page.parent / link).resolve()
        if "://" not in link and target.is_file() and target.is_relative_to(ROOT):
            yield target


def reached(start: Path) -> set[Path]:
    """All files that are reached from a page, and that page."""
    found, left = {start}, [start]
    while left:
        new = {target for target in targets(left.pop()) if target not in found}
        found |= new
        left += [target for target in new if target.suffix == ".md"]
    return found


def main() -> None:
    """Copy them."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for source in reached(ROOT / "README.md"):
        copy = PAGES / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)


if __name__ == "__main__":
    main()
