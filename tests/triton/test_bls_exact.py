"""What a request asks of sampling holds on every step as on the first: speculation against the target alone."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from triton import bls_client as bls
from triton.bls_client import Array, Response, ids, inputs, stream, text, words
from triton.harness import TritonServer, log_on_failure

PROMPTS = [json.loads(line)["prompt"] for line in (bls.PAIR / "prompts.jsonl").read_text().splitlines()[:6]]
MAX_DRAFT = 8


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    made = bls.repository(tmp_path_factory.mktemp("exact"), "reference", max_draft_len=MAX_DRAFT, max_engine_rows=64)
    with TritonServer(made) as running, log_on_failure(running):
        yield running


def weights(*values: float) -> Array:
    return np.array([values], np.float32)


BIAS: dict[str, Any] = {
    "embedding_bias_words": words(["self", "return"]),
    "embedding_bias_weights": weights(4.0, -30.0),
}
PENALTIES: dict[str, Any] = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2}
SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 20261121}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("greedy", {}),
    ("sampled with a seed", SAMPLED),
    ("sampled hot", {"temperature": 1.5, "top_p": 1.0, "seed": 7}),
    ("penalties", PENALTIES),
    ("penalties, sampled", PENALTIES | SAMPLED),
    ("bias", BIAS),
    ("bias, sampled", BIAS | SAMPLED),
    ("bad words", {"bad_words": words(["self", "return", " ="])}),
    ("min_tokens", {"min_tokens": 30}),
    ("an end_id in the middle", {"end_id": 199}),
    ("several stop words", {"stop_words": words(["return", "self.", "for "])}),
]


@pytest.mark.parametrize(("what", "more"), REQUESTS, ids=[what for what, _ in REQUESTS])
def test_every_step_is_the_target_s(server: TritonServer, what: str, more: dict[str, Any]) -> None:
    asked = {"max_tokens": 40, "return_log_probs": np.array([[True]]), **more}
    alone = [stream(server.grpc_url, inputs(prompt, num_draft_tokens=0, **asked)) for prompt in PROMPTS]
    for k in (1, 3, MAX_DRAFT):
        calls = [inputs(prompt, num_draft_tokens=k, stream=True, **asked) for prompt in PROMPTS]
        with ThreadPoolExecutor(len(calls)) as threads:
            streamed = list(threads.map(lambda call: stream(server.grpc_url, call), calls))
        for expected, chunks in zip(alone, streamed, strict=True):
            same(expected, chunks, what)


def same(expected: list[Response], chunks: list[Response], what: str) -> None:
    assert ids(chunks) == ids(expected), what
    assert text(chunks) == text(expected), what
    assert chunks[-1]["finish_reason"].item() == expected[-1]["finish_reason"].item()
    figures = [log_probs(chunks), log_probs(expected)]
    assert len(figures[0]) == len(ids(chunks))
    np.testing.assert_allclose(figures[0], figures[1], atol=1e-4)
    assert chunks[-1]["cum_log_probs"].item() == pytest.approx(float(figures[1].sum()), abs=1e-3)


def log_probs(responses: list[Response]) -> Array:
    """Of all tokens; text that was held back comes in responses without tokens."""
    return np.concatenate([r["output_log_probs"].reshape(-1) for r in responses if "output_log_probs" in r])


def test_the_settings_change_the_text(server: TritonServer) -> None:
    """Else the tests above would pass with settings that are lost on the way."""
    told = ["stop", "bad", "penalties", "bias", "sampled", "end_id"]
    plain = [ids(stream(server.grpc_url, inputs(prompt, max_tokens=40))) for prompt in PROMPTS]
    for what, more in REQUESTS:
        if any(word in what for word in told):
            changed = [ids(stream(server.grpc_url, inputs(prompt, max_tokens=40, **more))) for prompt in PROMPTS]
            assert changed != plain, what


def test_generation_logits_of_all_steps(server: TritonServer) -> None:
    asked: dict[str, Any] = {"max_tokens": 24, "return_generation_logits": np.array([[True]])}
    for prompt in PROMPTS[:3]:
        (alone,) = stream(server.grpc_url, inputs(prompt, num_draft_tokens=0, **asked))
        chunks = stream(server.grpc_url, inputs(prompt, num_draft_tokens=4, stream=True, **asked))
        logits = np.concatenate([chunk["generation_logits"][0, 0] for chunk in chunks])
        assert logits.shape[0] == len(ids(chunks)) == 24
        np.testing.assert_allclose(logits, alone["generation_logits"][0, 0], atol=1e-3)


def test_a_seed_gives_the_same_whatever_the_load_and_the_draft_length(server: TritonServer) -> None:
    single = ids(stream(server.grpc_url, inputs(PROMPTS[0], max_tokens=32, **SAMPLED)))
    calls = [
        inputs(prompt, max_tokens=32, num_draft_tokens=k, stream=bool(k % 2), **SAMPLED)
        for k in range(MAX_DRAFT + 1)
        for prompt in PROMPTS[:3]
    ]
    with ThreadPoolExecutor(len(calls)) as threads:
        answers = list(threads.map(lambda call: ids(stream(server.grpc_url, call)), calls))
    assert answers[::3] == [single] * (MAX_DRAFT + 1)
    other = SAMPLED | {"seed": 1}
    assert ids(stream(server.grpc_url, inputs(PROMPTS[0], max_tokens=32, **other))) != single


def test_by_logits_greedy_is_the_target_s_and_sampling_is_reproducible(server: TritonServer) -> None:
    logits: dict[str, Any] = {"use_draft_logits": np.array([[True]]), "max_tokens": 32}
    for prompt in PROMPTS[:3]:
        alone = ids(stream(server.grpc_url, inputs(prompt, max_tokens=32, num_draft_tokens=0)))
        assert ids(stream(server.grpc_url, inputs(prompt, num_draft_tokens=4, **logits))) == alone
    once = [
        ids(stream(server.grpc_url, inputs(PROMPTS[0], num_draft_tokens=4, **logits, **SAMPLED))) for _ in range(2)
    ]
    assert once[0] == once[1]


def test_by_logits_the_distribution_is_the_target_s(server: TritonServer) -> None:
    """The third token of a short prompt, by its frequency over many seeds, against the target alone."""
    many = 1500
    settings: dict[str, Any] = {"temperature": 1.0, "top_k": 4, "max_tokens": 3}

    def third(k: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for first in range(0, many, 50):
            seeds = [1 + 100_000 * k + first + i for i in range(50)]
            call = inputs(*["def f("] * 50, num_draft_tokens=k, seed=seeds, **settings)
            if k:
                call["use_draft_logits"] = np.ones((50, 1), np.bool_)
            for response in stream(server.grpc_url, call):
                token = int(response["output_ids"].reshape(-1)[-1])
                counts[token] = counts.get(token, 0) + 1
        return counts

    alone, speculated = third(0), third(2)
    tokens = sorted(set(alone) | set(speculated))
    a, b = (np.array([counts.get(token, 0) for token in tokens], float) for counts in (alone, speculated))
    statistic = float((((a - b) ** 2) / (a + b)).sum())  # two samples of equal size: chi-square, len - 1 degrees
    freedom = len(tokens) - 1
    assert statistic < freedom + 5 * np.sqrt(2 * freedom), (statistic, freedom)
