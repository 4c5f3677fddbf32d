"""Model repositories and requests for tests of the LLM-API model over `tensorrt_llm`'s stand-in or another."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tandem.engines.own import TandemLlmApi
from tandem.render.v1.llmapi import MAX_WAITING_SEQUENCES, NAMES, STREAMS, UNARY, LlmApiVariables
from tandem.render.v1.stack import config
from triton.bls_client import PAIR, Array
from triton.harness import REPOSITORY_ROOT

SERVING = REPOSITORY_ROOT / "images/serving/models"
STAND_IN = Path(__file__).with_name("stand_in_tensorrt_llm") / "tensorrt_llm"
INTEGERS = ("best_of", "top_k", "max_tokens", "min_tokens")
FLAGS = ("ignore_eos", "exclude_input_from_output", "return_perf_metrics")
REALS = ("temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
RETURNED = ("stop_reason", "cumulative_logprob", "log_probs", "prompt_log_probs")
SAMPLING = (*INTEGERS, *FLAGS, *REALS, "seed", "stop", "bad")
(_FACTS,) = TandemLlmApi.parameters.values()
REFUSED = dict.fromkeys(_FACTS.entries, "the engine does not have it; leave it out")
"""What the operator has the model refuse over reference_llm."""
KINDS: dict[str, Any] = {
    **dict.fromkeys(INTEGERS, np.int32),
    **dict.fromkeys(REALS, np.float32),
    **dict.fromkeys((*FLAGS, "streaming", *(f"return_{name}" for name in RETURNED)), np.bool_),
    **dict.fromkeys(("seed", "lora_id"), np.uint64),
}


def repository(
    folder: Path, llm_args: dict[str, Any] | None = None, *, engine: str = "TensorRT-LLM", **variables: Any
) -> Path:
    """A model repository as the operator renders it; `llm_args` beside the pair's target.

    TensorRT-LLM is the stand-in.
    """
    args = folder.with_name(f"{folder.name}-llm_args.yaml")
    args.write_text(yaml.safe_dump({"model": str(PAIR / "target"), **(llm_args or {})}))
    values = LlmApiVariables(
        streams=NAMES[STREAMS],
        unary=NAMES[UNARY],
        llm_args_path=str(args),
        engine=engine,
        max_batch_size=64,
        max_waiting_sequences=MAX_WAITING_SEQUENCES,
        request_timeout_seconds=300,
        drafter="",
        resource_manager="",
        drafter_path="",
        refused_parameters=json.dumps(REFUSED if engine == "Tandem" else {}),
    )
    values = replace(values, **variables)
    for source, name in NAMES.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(config(source, values))
        (folder / name / "1").symlink_to(SERVING / source / "1")
    if engine == "TensorRT-LLM":
        (folder / NAMES[STREAMS] / "tensorrt_llm").symlink_to(STAND_IN)  # the model's folder is on the stub's path
    return folder


def texts(*words: str) -> Array:
    """A string tensor."""
    return np.array([word.encode() for word in words], np.object_)


def inputs(*prompts: str, max_tokens: int | list[int] = 24, **more: Any) -> dict[str, Array]:
    """Tensors of a request; sampling parameters by their short names, one value or a list of one a prompt.

    The prompt is not repeated in the answer.
    """
    given = {"max_tokens": max_tokens, "exclude_input_from_output": True, **more}
    return {"text_input": texts(*prompts), **dict(tensor(name, value) for name, value in given.items())}


def tensor(name: str, value: Any) -> tuple[str, Array]:
    """An input tensor's full name and value."""
    full = f"sampling_param_{name}" if name in SAMPLING else name
    if isinstance(value, np.ndarray):
        return full, value
    if isinstance(value, str):
        return full, texts(value)
    return full, np.atleast_1d(np.array(value, KINDS[name]))
