"""Bills of materials (CycloneDX 1.6, JSON) of images, from the package databases that are in their layers.

Debian's packages are in dpkg's status file, Python's in the METADATA of each distribution. What an image has without
either is in ``WITHOUT_RECORD``, at the version that the image's lock pins.
Format: https://cyclonedx.org/docs/1.6/json/.
"""

from __future__ import annotations

import re
import tarfile
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from release import oci

WITHOUT_RECORD = {
    "serving": (("ziglang", "images/serving/requirements.txt"),),  # its C++ library is linked into the backends
    "reference": (("nvidia-pytriton", "images/reference/requirements.txt"),),  # Triton's server is unpacked from it
    "reference-torch": (("nvidia-pytriton", "images/reference/requirements.txt"),),
    "vllm-cpu": (("nvidia-pytriton", "images/vllm-cpu/requirements.txt"),),
}
"""Image to packages that it has parts of, without their own record, and the locks that pin them."""
_DPKG = re.compile(r"^(\./)?var/lib/dpkg/status$")
_PYTHON = re.compile(r"\.dist-info/METADATA$")
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True, order=True)
class Package:
    """One package of an image; ``purl``: https://github.com/package-url/purl-spec."""

    purl: str
    name: str
    version: str
    license: str = ""

    def component(self) -> dict[str, Any]:
        """Return it as a CycloneDX component."""
        about = {"type": "library", "bom-ref": self.purl, "name": self.name, "version": self.version}
        licenses = {"licenses": [{"license": {"name": self.license}}]} if self.license else {}
        return {**about, "purl": self.purl, **licenses}


def of_image(layout: Path, entry: oci.Descriptor, pinned: Iterable[Package]) -> list[Package]:
    """Return the packages of one platform's image, and those pinned ones that have no record in it, sorted."""
    recorded = {package for text in _records(layout, entry).items() for package in _packages(*text)}
    names = {package.purl.partition("@")[0] for package in recorded}
    return sorted(recorded | {package for package in pinned if package.purl.partition("@")[0] not in names})


def pinned(root: Path, image: str) -> list[Package]:
    """Return an image's packages without a record, as its locks in the repository ``root`` pin them."""
    found = []
    for name, lock in WITHOUT_RECORD.get(image, ()):
        version = re.search(rf"^{re.escape(name)}==([^ ;\\]+)", (root / lock).read_text(), re.MULTILINE)
        if version is None:
            raise LookupError(f"{lock} does not pin {name}: correct release.sbom.WITHOUT_RECORD")
        found.append(_python(name, version[1]))
    return found


def document(name: str, version: str, digest: str, packages: Iterable[Package]) -> dict[str, Any]:
    """Return the CycloneDX document of one image."""
    ref = f"pkg:oci/{name}@{quote(digest, safe='')}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ref)}",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "bom-ref": ref, "name": name, "version": version, "purl": ref},
        },
        "components": [package.component() for package in packages],
    }


def _records(layout: Path, entry: oci.Descriptor) -> dict[str, str]:
    """Return the package databases of an image by path: those of upper layers replace, whiteouts remove."""
    found: dict[str, str] = {}
    for tar in oci.layers(layout, entry):
        here: dict[str, str] = {}
        for member in tar:
            path = Path(member.name)
            if path.name.startswith(_WHITEOUT):
                found = _without(found, path)
            elif _is_record(member):
                file = tar.extractfile(member)
                here[member.name.removeprefix("./")] = file.read().decode(errors="replace") if file else ""
        found |= here
    return found


def _is_record(member: tarfile.TarInfo) -> bool:
    return member.isfile() and bool(_DPKG.search(member.name) or _PYTHON.search(member.name))


def _without(found: Mapping[str, str], whiteout: Path) -> dict[str, str]:
    """https://github.com/opencontainers/image-spec/blob/v1.1.1/layer.md#whiteouts."""
    opaque = whiteout.name == _OPAQUE
    gone = whiteout.parent if opaque else whiteout.parent / whiteout.name.removeprefix(_WHITEOUT)
    return {path: text for path, text in found.items() if not Path(path).is_relative_to(gone)}


def _packages(path: str, text: str) -> list[Package]:
    if _DPKG.search(path):
        stanzas = (HeaderParser().parsestr(stanza) for stanza in text.split("\n\n") if stanza.strip())
        return [_debian(stanza) for stanza in stanzas if "install ok installed" in stanza["Status"]]
    about = HeaderParser().parsestr(text)
    license = about.get("License-Expression") or about.get("License", "").partition("\n")[0]
    return [_python(about["Name"], about["Version"], license)]


def _debian(stanza: Message[str, str]) -> Package:
    name, version = stanza["Package"], stanza["Version"]
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={stanza['Architecture']}"
    return Package(purl, name, version)


def _python(name: str, version: str, license: str = "") -> Package:
    """https://github.com/package-url/purl-spec: names of PyPI are in lower case, with hyphens."""
    normal = re.sub(r"[-_.]+", "-", name).lower()
    return Package(f"pkg:pypi/{normal}@{quote(version, safe='')}", name, version, license)
