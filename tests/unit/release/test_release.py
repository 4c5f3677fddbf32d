"""A release's files agree: chart, manifests, checksums and provenance name the same images."""

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.errors import BuildError
from cluster import binaries
from release import chart, oci
from release.publish import publish

from .conftest import NAMES, SOURCE

pytestmark = pytest.mark.nightly


def digests(released: Path) -> dict[str, str]:
    return {name: oci.digest(released / "images" / name) for name in NAMES}


def refs(released: Path) -> dict[str, str]:
    return {name: f"registry.example/tandem/{name}@{digest}" for name, digest in digests(released).items()}


def in_chart(released: Path, name: str) -> str:
    with tarfile.open(released / "tandem-1.2.3.tgz") as tar:
        file = tar.extractfile(f"tandem/{name}")
        assert file is not None
        return file.read().decode()


def objects(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.load_all(text, yaml.CSafeLoader) if found]


def test_the_charts_defaults_are_the_images(released: Path) -> None:
    values = yaml.safe_load(in_chart(released, "values.yaml"))
    found, wanted = refs(released), yaml.safe_load((chart.CHART / "values.yaml").read_text(encoding="utf-8"))
    image = {"repository": "registry.example/tandem/operator", "digest": digests(released)["operator"]}
    assert values == {
        **wanted,
        "image": wanted["image"] | image,
        "servingImage": found["serving"],
        "fetcherImage": found["fetcher"],
        "profileImages": {"reference": found["reference"]},
    }
    assert "# Where the operator's image is, such as " in in_chart(released, "values.yaml"), "comments stay"
    about = yaml.safe_load(in_chart(released, "Chart.yaml"))
    assert (about["version"], about["appVersion"]) == ("1.2.3", "1.2.3")


def test_a_values_file_that_sets_images_otherwise_is_refused() -> None:
    images = chart.Images("r.example", dict.fromkeys(NAMES, "sha256:ab"))
    text = (chart.CHART / "values.yaml").read_text(encoding="utf-8")
    with pytest.raises(BuildError, match="on a line of its own"):
        chart.with_defaults(text.replace('servingImage: ""', 'servingImage:\n  ""'), images.values())


def test_install_yaml_is_all_that_kubectl_needs(released: Path) -> None:
    found = objects((released / "install.yaml").read_text(encoding="utf-8"))
    assert (found[0]["kind"], found[0]["metadata"]["name"]) == ("Namespace", "tandem-system")
    kinds = [each["kind"] for each in found]
    assert kinds.index("CustomResourceDefinition") < kinds.index("Deployment")
    outside = {each["metadata"].get("namespace", "tandem-system") for each in found} - {"tandem-system"}
    assert outside <= {"kube-system"}, "no other namespace, but that of the metrics' authentication"
    used = {
        container["image"]
        for each in found
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
    }
    assert used == {refs(released)["operator"]}


def test_an_overlay_takes_the_release_as_its_base(released: Path, tmp_path: Path) -> None:
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2}}
    patch["metadata"] = {"name": "tandem-operator", "namespace": "tandem-system"}
    base = Path("..") / released.relative_to(released.parent)
    overlay = released.parent / "overlay"
    overlay.mkdir()
    overlaid = {"resources": [str(base)], "patches": [{"patch": json.dumps(patch)}]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(overlaid), encoding="utf-8")
    kubectl = binaries.ensure(["kubectl"], print)["kubectl"]
    done = subprocess.run([kubectl, "kustomize", overlay], capture_output=True, text=True, check=True)
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects(done.stdout)}
    assert found["Deployment", "tandem-operator"]["spec"]["replicas"] == 2
    assert len(found) == len(objects((released / "install.yaml").read_text(encoding="utf-8")))


def test_checksums_cover_every_file(released: Path) -> None:
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=released, check=False)
    assert done.returncode == 0
    listed = {line.split("  ")[1] for line in (released / "SHA256SUMS").read_text().splitlines()}
    assert listed == {str(p.relative_to(released)) for p in released.rglob("*") if p.is_file()} - {"SHA256SUMS"}


def test_provenance_names_files_images_and_their_source(released: Path) -> None:
    statement = json.loads((released / "provenance.json").read_text())
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    lines = (released / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert {name: subjects[name] for name in sums if name != "provenance.json"} == {
        name: digest for name, digest in sums.items() if name != "provenance.json"
    }
    for name, digest in digests(released).items():
        assert f"sha256:{subjects[f'registry.example/tandem/{name}']}" == digest
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"VERSION": "1.2.3", "REGISTRY": "registry.example/tandem"}
    assert [each["digest"] for each in definition["resolvedDependencies"]] == [
        {"gitCommit": SOURCE.commit},
        {"sha256": "ab"},
    ]


def test_each_image_has_a_bill_of_materials(released: Path) -> None:
    for name in NAMES:
        made = json.loads((released / f"sbom-{name}-linux-amd64.cdx.json").read_text())
        assert made["metadata"]["component"]["name"] == name


def test_only_what_was_made_is_published(released: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="is no release"):
        publish(tmp_path)
    changed = released / "install.yaml"
    text = changed.read_text(encoding="utf-8")
    changed.write_text(text + "# changed\n", encoding="utf-8")
    try:
        with pytest.raises(BuildError, match=r"install\.yaml differ from SHA256SUMS"):
            publish(released)
    finally:
        changed.write_text(text, encoding="utf-8")
