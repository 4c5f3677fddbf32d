"""Renderer v1 depends on nothing that may change: what it imports, the facts among that, and fields to come."""

import ast
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tandem import names
from tandem.api import bounds, ports
from tandem.api.decoding import DecodingType, DraftKind
from tandem.api.profile import EngineSettings, Profile
from tandem.api.roles import Role
from tandem.api.types import KvCache, Lookahead, NGram, ServiceSpec
from tandem.digest import digest
from tandem.render import LATEST, RENDERERS, Record, latest, render, v1
from tandem.render.rendered import JobPod, Rendered
from tandem.settings import Settings

V1 = Path(str(resources.files("tandem.render.v1")))


LLMAPI: dict[str, Any] = {
    "runtime": {"mode": "LLMAPI", "profile": "trtllm-26.07"},
    "target": {"model": {"uri": "file:///models/target"}, "kvCache": {"maxTokens": 64}},
    "speculation": {"decodingType": "NGram", "nGram": {"maxMatchingNgramSize": 3}},
}
BLS: dict[str, Any] = {
    "runtime": {"mode": "BLS", "profile": "trtllm-26.07"},
    "target": {"model": {"uri": "file:///models/target"}, "kvCache": {"maxTokens": 64}},
    "speculation": {"decodingType": "Lookahead", "lookahead": {"windowSize": 3}},
}


def imports(path: Path) -> Iterator[str]:
    """Modules of Tandem that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write imports in full"
            of_package = node.module in ("tandem", "tandem.api", "tandem.render")
            modules = [f"{node.module}.{alias.name}" for alias in node.names] if of_package else [str(node.module)]
        yield from (each for each in modules if each.split(".")[0] == "tandem")


def test_what_v1_imports() -> None:
    everything = {each for path in V1.rglob("*.py") for each in imports(path)}
    outside = {each for each in everything if not each.startswith("tandem.render.v1")}
    assert outside == {
        "tandem.api.bounds",
        "tandem.api.ports",
        "tandem.api.profile",
        "tandem.api.roles",
        "tandem.api.types",
        "tandem.digest",
        "tandem.api.folders",
        "tandem.engines",
        "tandem.engines.gpus",
        "tandem.engines.tensorrt_engines.builds",
        "tandem.engines.tensorrt_llm.arguments",
        "tandem.names",
        "tandem.render.record",
        "tandem.render.rendered",
    }, "own what may change: copy it into tandem/render/v1, or keep it as it is"


def test_the_facts_that_v1_takes_from_there() -> None:
    """They are in revisions that serve: another value is for a new version of the renderer."""
    assert (ports.HTTP, ports.GRPC, ports.METRICS, ports.SSH, ports.OPENAI) == (8000, 8001, 8002, 2222, 9000)
    assert bounds.BLS_SEQUENCES == 64
    assert (names.CONTAINER, names.CACHE_CLAIM) == ("triton", "tandem-cache")
    assert digest({"b": [1, None], "a": "é"}) == "9b10bedce6"  # SHA-256 of {"a":"\u00e9","b":[1,null]}
    assert [role.value for role in Role][:6] == [
        *("target", "draft", "target-engine", "draft-engine", "target-tokenizer", "draft-tokenizer")
    ]


DRAFTS = {
    "DraftTarget": (DraftKind.MODEL, False),
    "Eagle3": (DraftKind.HEADS, False),
    "Eagle": (DraftKind.HEADS, False),
    "MTP": (DraftKind.NONE, False),
    "NGram": (DraftKind.NONE, True),
    "DFlash": (DraftKind.HEADS, False),
    "DSpark": (DraftKind.OPTIONAL_HEADS, False),
    "Medusa": (DraftKind.NONE, False),
    "Lookahead": (DraftKind.NONE, False),
    "UserProvided": (DraftKind.OPTIONAL_HEADS, True),
    "Custom": (DraftKind.CUSTOM_HEADS, False),
    "None": (DraftKind.NONE, False),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_the_traits_that_v1_reads(name: str) -> None:
    traits = DecodingType(name).traits
    assert (traits.draft, traits.drafts_on_host) == DRAFTS[name]


def test_a_revision_is_named_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the renderer, the inputs that are not at their default, and what was rendered; not by what else is known."""
    rendered = Rendered(
        files={"launch.json": "{}"},
        pod={"containers": []},
        worker=None,
        nodes=1,
        metadata={"labels": {}, "annotations": {}},
        preflight=JobPod({}, "not counted"),
    )
    monkeypatch.setitem(RENDERERS, "v0", lambda _: rendered)
    spec = ServiceSpec.model_validate({**LLMAPI, "replicas": 3})
    profile = Profile(name="trtllm-26.07", engine=EngineSettings(kind="TensorRT-LLM", version="1.2.1"))
    revision = render(Record(renderer="v0", serving_image="not counted", profile=profile, spec=spec))
    assert revision.digest == "36fdceab40"


class LaterNGram(NGram):
    later: int = 1


class LaterLookahead(Lookahead):
    later: int = 1


class LaterKvCache(KvCache):
    later: int = 1


def grown(spec: ServiceSpec) -> ServiceSpec:
    """`spec` as a later version of the API reads it, with a field more in some blocks."""
    speculation, cache = spec.speculation, spec.target.kv_cache
    blocks = {
        "n_gram": speculation.n_gram and LaterNGram(**dict(speculation.n_gram)),
        "lookahead": speculation.lookahead and LaterLookahead(**dict(speculation.lookahead)),
    }
    target = spec.target.model_copy(update={"kv_cache": cache and LaterKvCache(**dict(cache))})
    return spec.model_copy(update={"speculation": speculation.model_copy(update=blocks), "target": target})


@pytest.mark.parametrize("written", [LLMAPI, BLS], ids=["LLMAPI", "BLS"])
def test_a_field_that_comes_later_changes_no_revision(written: dict[str, Any], settings: Settings) -> None:
    spec = ServiceSpec.model_validate(written)
    profile = settings.profile(spec.runtime.profile)
    assert profile
    record = Record(renderer="v1", serving_image="serving:1", profile=profile, spec=spec)
    later = record.model_copy(update={"spec": grown(spec)})
    assert "later" in dict(later.spec.target.kv_cache or ())
    assert v1.render(later) == v1.render(record)


def test_what_asks_before_there_is_a_revision_asks_the_latest() -> None:
    modules = set(imports(Path(latest.__file__)))
    assert modules
    assert {each for each in modules if not each.startswith(f"tandem.render.{LATEST}.")} == set()
