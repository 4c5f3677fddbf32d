"""Every file of examples/ is accepted as it stands and rendered completely, offline."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from tandem.api.decoding import DecodingType
from tandem.api.roles import downloads
from tandem.cli.manifests import accepted_all
from tandem.cli.render import render_manifests
from tandem.engines import modes
from tandem.rollout.pipeline import makes_cache
from tandem.settings import Settings

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))
README = REPOSITORY / "examples/README.md"
PROFILES = REPOSITORY / "docs/reference/profiles.md"
KIND = "SpeculativeInferenceService"
OF_OTHERS = ("# keda-values.yaml", "# kustomization.yaml")
"""Files that KEDA's chart and Kustomize read, not Tandem's."""


def services(settings: Settings, paths: list[Path] = EXAMPLES) -> list[tuple[str, str, str]]:
    """Name, mode and decoding type of the services in these files."""
    found = [service for path in paths for service, _ in accepted_all(path.read_text(encoding="utf-8"), settings)]
    return [(s.name, s.spec.runtime.mode.value, s.spec.speculation.decoding_type.value) for s in found]


def test_every_decoding_type_of_each_mode_has_one(settings: Settings) -> None:
    shown = {(mode, kind) for _, mode, kind in services(settings)}
    types = set(DecodingType) - {DecodingType.EAGLE}
    assert shown == {(mode, kind) for kind in types for mode in kind.traits.modes}, "Eagle is an alias"


def test_all_can_be_applied_together(settings: Settings) -> None:
    names = [name for name, _, _ in services(settings)]
    assert len(names) == len(set(names))


def test_the_list_of_examples_is_complete(settings: Settings) -> None:
    listed = re.findall(
        r"^\| \[([\w-]+)\]\(([\w.-]+)\) \| (\w+) \| (\w+) \|", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    found = [(path.stem, path.name, *services(settings, [path])[0][1:]) for path in EXAMPLES]
    assert sorted(listed) == sorted(found)


def test_the_documentation_says_which_profiles_never_ran(settings: Settings) -> None:
    text = PROFILES.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.-]+)` \| .* \| ([\w, ]+) \| (yes|\*\*never\*\*) \|$", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        (p.name, ", ".join(mode.value for mode in modes(p)), "yes" if p.verified else "**never**")
        for p in settings.profiles
    )


def written_in_documents() -> Iterator[tuple[str, str]]:
    """Document and text of each YAML that people may copy from it."""
    for path in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *REPOSITORY.glob("*/*/README.md")]:
        page = path.read_text(encoding="utf-8")
        for pattern in (r"^```yaml\n(.*?)^```$", r"^kubectl .*apply -f - <<'EOF'\n(.*?)^EOF$"):
            for text in re.findall(pattern, page, re.MULTILINE | re.DOTALL):
                yield path.name, text


def unknown(values: dict[str, Any], defaults: dict[str, Any], path: str = "") -> Iterator[str]:
    """Values that the chart has not."""
    for key, value in values.items():
        if key not in defaults:
            yield f"{path}{key}"
        elif isinstance(value, dict) and defaults[key]:
            yield from unknown(value, defaults[key], f"{path}{key}.")


def test_what_documents_show_can_be_copied(settings: Settings) -> None:
    quickstart = yaml.safe_load((REPOSITORY / "examples/quickstart.yaml").read_text(encoding="utf-8"))
    chart = yaml.safe_load((REPOSITORY / "charts/tandem/values.yaml").read_text(encoding="utf-8"))
    found = list(written_in_documents())
    assert len(found) >= 15
    for document, text in found:
        shown = yaml.safe_load(text)
        if shown.get("kind", KIND) != KIND:
            continue
        if "kind" in shown:
            assert accepted_all(text, settings), document
        elif "spec" in shown:
            whole = {**quickstart, **shown, "spec": {**quickstart["spec"], **shown["spec"]}}
            assert accepted_all(yaml.safe_dump(whole), settings), document
        elif not text.startswith(OF_OTHERS):
            assert list(unknown(shown, chart)) == [], document


DRAW_NOTHING = ("bls-lookahead", "bls-medusa")
"""Engines that take the likeliest token."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_rendered_completely(path: Path, settings: Settings) -> None:
    found = accepted_all(path.read_text(encoding="utf-8"), settings)
    ((service, accepted),) = found
    warned = ["requests that sample get 400"] if path.stem in DRAW_NOTHING else []
    assert [warning.partition(", those")[0] for warning in accepted.warnings] == warned
    manifests = list(yaml.safe_load_all(render_manifests(found, settings)))
    kinds = [manifest["kind"] for manifest in manifests]
    assert {"ServiceAccount", "ConfigMap", "Service", "Job"} <= set(kinds)
    workload = "LeaderWorkerSet" if accepted.engine.gpu_plan(service.spec).nodes > 1 else "Deployment"
    assert [kind for kind in kinds if kind in ("Deployment", "LeaderWorkerSet")] == [workload]
    jobs = [m["metadata"]["name"] for m in manifests if m["kind"] == "Job"]
    assert sum("-fetch-" in name for name in jobs) == len(downloads(service.spec))
    assert ("PersistentVolumeClaim" in kinds) == makes_cache(service.spec, accepted.engine)
    (configmap,) = [m for m in manifests if m["kind"] == "ConfigMap"]
    configs = {name: text for name, text in configmap["data"].items() if name.endswith(".pbtxt")}
    for text in configs.values():
        text_format.Parse(text, model_config_pb2.ModelConfig())
    assert "tensorrt_llm.config.pbtxt" in configs
    assert ("llm_args.yaml" in configmap["data"]) == (service.spec.runtime.mode == "LLMAPI")
    assert not any("${" in text or "{{" in text for text in configs.values()), "a placeholder is left"
