"""What the tests of upstream's clients share: servers, prompts, what such clients send, and what the BLS answers."""

import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from triton import bls_client as bls
from triton import tensorrt_profile
from triton.bls_client import PAIR, Array, unary, words
from triton.harness import TritonServer
from triton.loop_client import Tensors

MAX_TOKENS = 24
PROMPTS = [json.loads(line)["prompt"] for line in (PAIR / "prompts.jsonl").read_text().splitlines()[:12]]
TOKENIZER = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
UNARY = ["tensorrt_llm_bls", "ensemble"]


SERVERS = ["reference", "TensorRT", "TensorRT, by logits"]
"""The engines: the reference engine, and as the profile of TensorRT's engines is rendered."""


def repository(folder: Path, server: str) -> Path:
    """The models of one of SERVERS."""
    if server.startswith("TensorRT"):
        acceptance = "{method: Logits}" if "logits" in server else "{method: TokenMatch}"
        return tensorrt_profile.repository(folder, acceptance)
    return bls.repository(folder, "reference", max_engine_rows=64)


def number(value: float, kind: type = np.float32) -> Array:
    return np.array([[value]], kind)


def completion(prompt: str, **more: Array) -> Tensors:
    """What upstream's completion clients send at least."""
    return {"text_input": words([prompt]), "max_tokens": number(MAX_TOKENS, np.int32), **more}


def answer(server: TritonServer, prompt: str, **more: Array) -> tuple[str, list[int]]:
    """Text, prompt included, and new tokens of the BLS."""
    response = unary(server.grpc_url, completion(prompt, **more))
    ids: list[int] = response["output_ids"].reshape(-1).tolist()
    return response["text_output"][0].decode(), ids[response["num_input_tokens"].item() :]
