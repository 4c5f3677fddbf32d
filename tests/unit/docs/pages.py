"""The pages: every Markdown file of the repository."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
_FILES = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
PAGES = sorted(
    ROOT / name
    for name in subprocess.run(_FILES, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    if (ROOT / name).exists()
)


def name(page: Path) -> str:
    """As it is named in messages and test ids."""
    return str(page.relative_to(ROOT))
