"""axe-core, which checks a page's accessibility: from its npm package, which is kept in the cache."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
from typing import Any

from cluster import binaries
from ui.browser import Browser

PACKAGE, VERSION = "axe-core", "4.14.1"
INTEGRITY = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
"""SHA-512 of the package, as the registry has it."""
RUN = """
return axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
  .then((result) => ({
    violations: result.violations.map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" | ")}`),
    passes: result.passes.map((each) => each.id),
  }));
"""


def source() -> str:
    """axe-core's script."""
    folder = binaries.cache_dir().parent
    package = folder / f"{PACKAGE}-{VERSION}.tgz"
    if not package.exists():
        assert shutil.which("npm"), "npm is not in PATH: install Node.js"
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", f"--pack-destination={folder}", f"{PACKAGE}@{VERSION}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    held = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    assert held == INTEGRITY, f"{package} is not what it should be: remove it"
    with tarfile.open(package) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file
        return file.read().decode()


def violations(browser: Browser) -> list[str]:
    """What is wrong with the page that is shown: rule, and elements."""
    browser.run(source())
    found: dict[str, Any] = browser.run(RUN)
    assert "color-contrast" in found["passes"] or found["violations"], "it looked at nothing"
    return list(found["violations"])
