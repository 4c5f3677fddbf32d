"""Bills of materials: the packages that are in the layers, and no others."""

import re
from pathlib import Path

import pytest

from release import oci, sbom
from support import docker_archives

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[3]


def dpkg(*packages: str, status: str = "install ok installed") -> str:
    stanza = "Package: {0}\nStatus: {1}\nArchitecture: amd64\nVersion: 1:2.0+b1\nDescription: x\n more\n"
    return "\n".join(stanza.format(package, status) for package in packages)


def metadata(name: str, version: str, license: str = "") -> str:
    return f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{license}\nThe text\n"


def packages(folder: Path, *layers: dict[str, str], pinned: list[sbom.Package] | None = None) -> list[str]:
    archive = docker_archives.write(folder / "a.tar", layers)
    oci.from_archive(archive, folder / "a", {})
    (entry,) = oci.manifests(folder / "a")
    return [package.purl for package in sbom.of_image(folder / "a", entry, pinned or [])]


SITE = "opt/venv/lib/python3.11/site-packages"


def test_packages_of_debian_and_python(tmp_path: Path) -> None:
    base = {"./var/lib/dpkg/status": dpkg("libc6")}
    ours = {f"{SITE}/Ruamel_Yaml-0.1.dist-info/METADATA": metadata("Ruamel.Yaml", "0.1"), f"{SITE}/x/METADATA": "no"}
    assert packages(tmp_path, base, ours) == [
        "pkg:deb/debian/libc6@1%3A2.0%2Bb1?arch=amd64",
        "pkg:pypi/ruamel-yaml@0.1",
    ]


def test_upper_layers_replace_and_remove(tmp_path: Path) -> None:
    below = {
        "var/lib/dpkg/status": dpkg("old"),
        f"{SITE}/a-1.dist-info/METADATA": metadata("a", "1"),
        f"{SITE}/b-1.dist-info/METADATA": metadata("b", "1"),
        "opt/other/c-1.dist-info/METADATA": metadata("c", "1"),
    }
    above = {
        "var/lib/dpkg/status": dpkg("new"),
        f"{SITE}/.wh.a-1.dist-info": "",
        "opt/other/.wh..wh..opq": "",
        "opt/other/d-1.dist-info/METADATA": metadata("d", "1"),
    }
    assert packages(tmp_path, below, above) == [
        "pkg:deb/debian/new@1%3A2.0%2Bb1?arch=amd64",
        "pkg:pypi/b@1",
        "pkg:pypi/d@1",
    ]


def test_removed_packages_are_not_listed(tmp_path: Path) -> None:
    assert packages(tmp_path, {"var/lib/dpkg/status": dpkg("gone", status="deinstall ok config-files")}) == []


def test_what_has_no_record_is_as_the_lock_pins_it(tmp_path: Path) -> None:
    pinned = [sbom.Package("pkg:pypi/a@2", "a", "2"), sbom.Package("pkg:pypi/b@2", "b", "2")]
    recorded = {f"{SITE}/a-1.dist-info/METADATA": metadata("a", "1")}
    assert packages(tmp_path, recorded, pinned=pinned) == ["pkg:pypi/a@1", "pkg:pypi/b@2"]


@pytest.mark.parametrize(("image", "rows"), sbom.WITHOUT_RECORD.items())
def test_the_locks_pin_what_has_no_record(image: str, rows: tuple[tuple[str, str], ...]) -> None:
    found = sbom.pinned(ROOT, image)
    assert [package.name for package in found] == [name for name, _ in rows]
    assert all(re.fullmatch(r"\d+(\.\d+)+", package.version) for package in found)


def test_a_document_is_cyclonedx() -> None:
    package = sbom.Package("pkg:pypi/a@1", "a", "1", "MIT")
    made = sbom.document("operator", "1.2.3", "sha256:ab", [package])
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["serialNumber"])
    assert made["metadata"]["component"]["purl"] == "pkg:oci/operator@sha256%3Aab"
    assert made["components"] == [
        {
            "type": "library",
            "bom-ref": "pkg:pypi/a@1",
            "name": "a",
            "version": "1",
            "purl": "pkg:pypi/a@1",
            "licenses": [{"license": {"name": "MIT"}}],
        }
    ]
