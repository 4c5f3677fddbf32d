"""A model repository as the operator renders it for a profile with TensorRT engines, on the reference engine.

Configurations are the rendered ones to the letter, but for paths (the pair's folders stand for engines and models)
and the backend of the engines: a Python model that takes TensorRT-LLM's parameters (`tensorrt_engine`).
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import yaml

from tandem.accept import Accepted, accept
from tandem.api.roles import downloads
from tandem.api.types import SpeculativeInferenceService
from tandem.render import LATEST, Record, Revision, render
from tandem.settings import load_settings
from triton import backends
from triton.bls_client import PAIR
from triton.repository import SERVING

ENGINE = Path(__file__).with_name("tensorrt_engine")
BACKENDS: dict[str, Callable[[], Path]] = {
    "engine_collector": backends.collector,
    "engine_rounds": backends.rounds,
    "engine_streams": backends.streams,
}
SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: pair, namespace: team-a}
spec:
  runtime: {mode: BLS, profile: trtllm-26.07}
  target: {model: {uri: hf://org/target}}
  draft: {model: {uri: hf://org/draft}, kvCache: {maxTokens: 65536}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 8, adaptive: {enabled: false}, acceptance: ACCEPTANCE}
  placement: {gpu: {product: [NVIDIA-L40S]}}
"""


def repository(folder: Path, acceptance: str = "{method: TokenMatch}") -> Path:
    """Write the models of a service that accepts drafts so into `folder`.

    By `{method: Logits}` engines are not decoupled, and clients call them by themselves.
    """
    revision = _rendered(SERVICE.replace("ACCEPTANCE", acceptance))
    plan = json.loads(revision.files["launch.json"])
    for name, model in plan["models"].items():
        destination = folder / name
        destination.mkdir(parents=True)
        config = _with_the_pair(revision.files[model["config"]], plan)
        (destination / "config.pbtxt").write_text(config.replace('backend: "tensorrtllm"', 'backend: "python"'))
        add_code(destination / "1", Path(model.get("source", "")).name, is_engine="tensorrtllm" in config)
    return folder


def _rendered(text: str) -> Revision:
    service = SpeculativeInferenceService.model_validate(yaml.safe_load(text))
    settings = load_settings()
    accepted = accept(service.spec, settings)
    assert isinstance(accepted, Accepted), accepted
    profile = settings.profile(service.spec.runtime.profile)
    assert profile is not None
    fetched = {role: f"/cache/models/{role}" for role in downloads(service.spec)}
    return render(
        Record(renderer=LATEST, serving_image="serving:1", profile=profile, spec=service.spec, fetched=fetched)
    )


def _with_the_pair(config: str, plan: dict[str, dict[str, dict[str, str]]]) -> str:
    for role, build in plan["builds"].items():
        for path in (build["folder"], build["model"]):
            config = config.replace(f'"{path}"', f'"{PAIR / role}"')
    return config


def add_code(folder: Path, source: str, is_engine: bool = False) -> None:
    """Make a model's version `folder`, with the code of one of Tandem's own models or of the engine, or none."""
    if source in BACKENDS:
        library = BACKENDS[source]()
        folder.mkdir()
        (folder / library.name).symlink_to(library)
    elif source:
        folder.symlink_to(SERVING / source / "1")
    elif is_engine:
        folder.mkdir()
        shutil.copy(ENGINE / "model.py", folder)
    else:
        folder.mkdir()  # an ensemble is its configuration alone
