"""What a request asks of sampling holds on every step as on the first: speculation against the target alone."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from triton import bls_client as bls
from triton.bls_client import Array, Response, ids, inputs, stream, text, unary, words
from triton.harness import TritonServer
from triton.waits import metric

MANY = [json.loads(line)["prompt"] for line in (bls.PAIR / "prompts.jsonl").read_text().splitlines()[:24]]
PROMPTS = MANY[:4]
TOKENIZER = Tokenizer.from_file(str(bls.PAIR / "target/tokenizer.json"))
MAX_DRAFT = 8
MAX_TOKENS = 40
LENGTHS = (1, 3, MAX_DRAFT)
TRUE = np.array([[True]])
NONE = np.array([[0]], np.int32)


@pytest.fixture(scope="module", params=[False], ids=["one device"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """On devices of their own two micro-batches may alternate: that is of many sequences at once."""
    limits = {"max_draft_len": MAX_DRAFT, "max_engine_rows": 64, "separate_devices": request.param}
    made = bls.repository(tmp_path_factory.mktemp("exact"), "reference", **limits)
    with TritonServer(made) as running:
        yield running


DEVICES = [pytest.param(False, id="one device"), pytest.param(True, id="two", marks=pytest.mark.nightly)]
many_at_once = pytest.mark.parametrize("server", DEVICES, indirect=True)


def weights(*values: float) -> Array:
    return np.array([values], np.float32)


BIAS: dict[str, Any] = {
    "embedding_bias_words": words(["self", "return"]),
    "embedding_bias_weights": weights(4.0, -30.0),
}
PENALTIES: dict[str, Any] = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2}
SAMPLED: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 20261121}
BAD = ["self", "return", "for", "(", "\n"]
SCORES: dict[str, Any] = {"return_log_probs": TRUE, "return_generation_logits": TRUE}
# what a request asks for, and whether that changes its text
REQUESTS: list[tuple[str, dict[str, Any], bool]] = [
    ("greedy", {}, False),
    ("temperature", {"temperature": 1.5, "top_k": 50, "seed": 7}, True),
    ("top_k", {"top_k": 5, "seed": 7}, True),
    ("top_p", {"top_p": 0.9, "top_k": 0, "seed": 7}, True),
    ("sampled", SAMPLED, True),
    ("repetition_penalty", {"repetition_penalty": 1.3}, True),
    ("presence_penalty", {"presence_penalty": 0.9}, True),
    ("frequency_penalty", {"frequency_penalty": 0.7}, True),
    ("penalties, sampled", PENALTIES | SAMPLED, True),
    ("bias", BIAS, True),
    ("bias, sampled", BIAS | SAMPLED, True),
    ("bad words", {"bad_words": words(["self", "return", " ="])}, True),
    ("an end_id in the middle", {"end_id": 199}, True),
    ("min_tokens before that end", {"end_id": 199, "min_tokens": 30}, True),
    ("several stop words", {"stop_words": words(["return", "self.", "for "])}, True),
]
NAMES = [what for what, *_ in REQUESTS]


Alone = Callable[[str, dict[str, Any]], list[list[Response]]]


@pytest.fixture(scope="module")
def alone(server: TritonServer) -> Alone:
    """What the target alone says to each prompt, and the scores of each token: once for each sort of request."""
    known: dict[str, list[list[Response]]] = {}

    def said(what: str, more: dict[str, Any]) -> list[list[Response]]:
        if what not in known:
            asked = {"max_tokens": MAX_TOKENS, "num_draft_tokens": 0, **SCORES, **more}
            known[what] = [stream(server.grpc_url, inputs(prompt, **asked)) for prompt in PROMPTS]
        return known[what]

    return said


Compare = Callable[[list[Response], list[Response], str], None]


@pytest.mark.parametrize(("what", "more", "changes"), REQUESTS, ids=NAMES)
def test_every_step_is_the_target_s(
    server: TritonServer, alone: Alone, what: str, more: dict[str, Any], changes: bool
) -> None:
    """Streams at once, and one request of all prompts that is not streamed.

    With the scores of each token asked for, which the server's rounds have no room for.
    """
    expected = alone(what, more)
    assert (tokens_of(expected) != tokens_of(alone("greedy", {}))) is changes, "else one that is lost would not show"
    asked = {"max_tokens": MAX_TOKENS, **SCORES, **more}
    as_the_target(server, expected, what, asked, same_scores, LENGTHS[1:2])


@pytest.mark.parametrize(("what", "more", "changes"), REQUESTS, ids=NAMES)
def test_every_step_in_the_server_s_rounds_is_the_target_s(
    server: TritonServer, alone: Alone, what: str, more: dict[str, Any], changes: bool
) -> None:
    """The same without scores, at the shortest and the longest draft: rounds are made in the server."""
    expected = alone(what, more)
    before, lengths = rows_of_rounds(server), (LENGTHS[0], LENGTHS[-1])
    as_the_target(server, expected, what, {"max_tokens": MAX_TOKENS, **more}, same, lengths)
    assert rows_of_rounds(server) - before > MAY_JOIN * (len(lengths) + 1) * len(PROMPTS), (
        "drafts are verified in rounds"
    )


MAY_JOIN = 2
"""Calls of a sequence without a draft, its first and its last: the model of rounds gets them though it makes none."""


def rows_of_rounds(server: TritonServer) -> float:
    """How many rows the model has answered that makes rounds."""
    [name] = [model.name for model in server.repository.iterdir() if model.name.endswith("_rounds")]
    return metric(server, f'nv_inference_count{{model="{name}",version="1"}}')


@many_at_once
@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_rows_of_a_round_keep_their_own_settings(server: TritonServer, sampled: bool) -> None:
    """Their tensors are alike, of a single token each."""
    settings = [every_setting(i, sampled) for i in range(len(MANY))]
    kept = rows_of_rounds(server)
    with ThreadPoolExecutor(len(MANY)) as threads:

        def told(k: int | None) -> list[list[Response]]:
            calls = [
                inputs(prompt, num_draft_tokens=1 + i % MAX_DRAFT if k is None else k, stream=True, **settings[i])
                for i, prompt in enumerate(MANY)
            ]
            return list(threads.map(lambda call: stream(server.grpc_url, call), calls))

        for i, (expected, chunks) in enumerate(zip(told(0), told(None), strict=True)):
            same(expected, chunks, f"prompt {i}")
    assert rows_of_rounds(server) - kept > MAY_JOIN * len(MANY), "drafts are verified in rounds"


def every_setting(i: int, sampled: bool) -> dict[str, Any]:
    """All that a round has tensors for, at other values for each prompt."""
    return {
        "max_tokens": 20 + i % 12,
        "min_tokens": 4 + i % 8,
        "end_id": 199,
        "repetition_penalty": 1.0 + 0.05 * (i % 5),
        "presence_penalty": 0.1 * (i % 4),
        "frequency_penalty": 0.1 * (i % 3),
        "embedding_bias_words": words(["self", "return"]),
        "embedding_bias_weights": weights(float(i % 4 - 2), float(2 - i % 5)),
        "bad_words": words([BAD[i % len(BAD)]]),
        **({"temperature": 0.7 + 0.1 * (i % 4), "top_k": 10 + i, "seed": i} if sampled else {}),
    }


def tokens_of(answers: list[list[Response]]) -> list[list[int]]:
    """The tokens of each prompt."""
    return [ids(answer) for answer in answers]


def as_the_target(
    server: TritonServer,
    alone: list[list[Response]],
    what: str,
    asked: dict[str, Any],
    compare: Compare,
    lengths: Sequence[int],
) -> None:
    """Compare what comes with drafts with what comes without."""
    rows: dict[str, Any] = {
        name: np.repeat(v, len(PROMPTS), axis=0) if isinstance(v, np.ndarray) else v for name, v in asked.items()
    }
    for k in lengths:
        calls = [inputs(prompt, num_draft_tokens=k, stream=True, **asked) for prompt in PROMPTS]
        with ThreadPoolExecutor(len(calls)) as threads:
            streamed = list(threads.map(lambda call: stream(server.grpc_url, call), calls))
        for expected, chunks in zip(alone, streamed, strict=True):
            compare(expected, chunks, f"{what}, k = {k}, streamed")
    merged = unary(server.grpc_url, inputs(*PROMPTS, num_draft_tokens=k, **rows))
    for i, expected in enumerate(alone):
        compare(expected, [row(merged, i)], f"{what}, k = {k}, in one response")


ONE_A_PROMPT = ("text_output", "finish_reason", "cum_log_probs", "num_input_tokens", "num_output_tokens")
ONE_A_TOKEN = ("output_log_probs", "generation_logits")


def row(merged: Response, i: int) -> Response:
    """Prompt `i` of a response for several, as the response of a single one."""
    count = merged["num_output_tokens"][i, 0]
    return {
        "output_ids": merged["output_ids"][i : i + 1, :count],
        **{name: merged[name][i : i + 1] for name in ONE_A_PROMPT if name in merged},
        **{name: merged[name][i : i + 1, :, :count] for name in ONE_A_TOKEN if name in merged},
        "batch_index": np.array([[0]]),
    }


def same(expected: list[Response], chunks: list[Response], what: str) -> None:
    assert ids(chunks) == ids(expected), what
    assert text(chunks) == text(expected), what
    for name in ("finish_reason", "num_input_tokens", "num_output_tokens"):
        assert chunks[-1][name].item() == expected[-1][name].item(), what
    assert chunks[-1]["num_output_tokens"].item() == len(ids(chunks)), what


def same_scores(expected: list[Response], chunks: list[Response], what: str) -> None:
    same(expected, chunks, what)
    figures = [gathered(answer, "output_log_probs", ()) for answer in (chunks, expected)]
    assert len(figures[0]) == len(ids(chunks)), what
    np.testing.assert_allclose(figures[0], figures[1], atol=1e-4, err_msg=what)
    assert chunks[-1]["cum_log_probs"].item() == pytest.approx(float(figures[1].sum()), abs=1e-3), what
    logits = [gathered(answer, "generation_logits", (2048,)) for answer in (chunks, expected)]
    assert len(logits[0]) == len(ids(chunks)), what
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-3, err_msg=what)


def gathered(responses: list[Response], name: str, each: tuple[int, ...]) -> Array:
    """An output of all tokens; responses without tokens may lack it."""
    return np.concatenate([np.empty((0, *each)), *(r[name].reshape(-1, *each) for r in responses if name in r)])


OWN: list[dict[str, Any]] = [
    {"max_tokens": 5, "num_draft_tokens": 0, "temperature": 1.0, "top_k": 1, "seed": 1, "end_id": -1},
    {"max_tokens": 40, "num_draft_tokens": 1, "temperature": 0.7, "top_k": 20, "seed": 2, "end_id": 199},
    {"max_tokens": 23, "num_draft_tokens": 4, "temperature": 1.3, "top_k": 0, "seed": 3, "end_id": -1},
    {"max_tokens": 40, "num_draft_tokens": 8, "temperature": 1.0, "top_k": 1, "seed": 4, "end_id": -1},
]
OWN_WORDS = [["return", "self."], ["", ""], ["\n", ""], ["for ", "zip"]]


def test_each_prompt_of_a_request_has_its_own_settings(server: TritonServer) -> None:
    """Lengths, ends, stop words, sampling, drafts: as if each were a request."""
    requests = [
        inputs(prompt, stop_words=words(stops), **own)
        for prompt, own, stops in zip(PROMPTS, OWN, OWN_WORDS, strict=True)
    ]
    single = [stream(server.grpc_url, request | {"num_draft_tokens": NONE})[0] for request in requests]
    together = {name: np.concatenate([request[name] for request in requests]) for name in requests[0]}
    streamed = stream(server.grpc_url, together | {"stream": np.ones((len(PROMPTS), 1), np.bool_)})
    merged = unary(server.grpc_url, together)
    for i, expected in enumerate(single):
        count = merged["num_output_tokens"][i, 0]
        assert ids(streamed, i) == merged["output_ids"][i, :count].tolist() == ids([expected])
        assert text(streamed, i) == merged["text_output"][i].decode() == text([expected])
        [*_, end] = [r["finish_reason"].item() for r in streamed if r["batch_index"].item() == i]
        assert end == merged["finish_reason"][i, 0] == expected["finish_reason"].item()
    assert len({answer["finish_reason"].item() for answer in single}) > 1, "they end for different reasons"


@pytest.mark.parametrize("repeated", [False, True], ids=["excluded", "repeated"])
def test_prompts_as_token_ids_are_those_of_their_texts(server: TritonServer, repeated: bool) -> None:
    """Of unequal lengths; what fills them up is a token as any other, and no part of them."""
    more: dict[str, Any] = {"max_tokens": [9, 40, 17, 24], "exclude_input_in_output": not repeated}
    by_text = inputs(*PROMPTS, **more)
    tokens = [TOKENIZER.encode(prompt).ids for prompt in PROMPTS]
    assert len(set(map(len, tokens))) == len(PROMPTS)
    by_ids = by_text | padded(tokens)
    del by_ids["text_input"]
    merged, expected = unary(server.grpc_url, by_ids), unary(server.grpc_url, by_text)
    for name in ("output_ids", "num_input_tokens", "num_output_tokens", "finish_reason", "text_output"):
        assert merged[name].tolist() == expected[name].tolist(), name
    assert merged["num_input_tokens"].ravel().tolist() == [len(row) for row in tokens]
    streaming = {"stream": np.ones((len(PROMPTS), 1), np.bool_)}
    streamed, as_text = (stream(server.grpc_url, each | streaming) for each in (by_ids, by_text))
    for i in range(len(PROMPTS)):
        assert (ids(streamed, i), text(streamed, i)) == (ids(as_text, i), text(as_text, i))


def padded(rows: list[list[int]]) -> dict[str, Array]:
    """Rows as `input_ids` and `input_lengths`, filled up with a token that means something."""
    filled = np.full((len(rows), max(map(len, rows))), 7, np.int32)
    for each, row in zip(filled, rows, strict=True):
        each[: len(row)] = row
    return {"input_ids": filled, "input_lengths": np.array([[len(row)] for row in rows], np.int32)}


TOWN = 'names = ["' + '東京", "' * 5
# prompts that the pair goes on with in kind, what else is asked for, and whether the text ends inside a character
CHARACTERS: list[tuple[str, str, dict[str, Any], bool]] = [
    ("two bytes", 'x = "' + 'é", "' * 6, {}, False),
    ("three", TOWN, {}, False),
    ("four", 's = "' + "🗼" * 12, {}, False),
    ("cut", 'x = "' + "東" * 16, {}, True),
    ("a stop word", TOWN, {"stop_words": words(["京"])}, False),
    ("by logits", TOWN, {"use_draft_logits": TRUE}, False),
]


@pytest.mark.parametrize(("what", "prompt", "more", "cut"), CHARACTERS, ids=[what for what, *_ in CHARACTERS])
def test_characters_of_several_tokens_stay_whole(
    server: TritonServer, what: str, prompt: str, more: dict[str, Any], cut: bool
) -> None:
    """Rounds end inside them, chunks do not."""
    alone = stream(server.grpc_url, inputs(prompt, max_tokens=MAX_TOKENS, num_draft_tokens=0, **more))
    whole = text(alone)
    assert TOKENIZER.decode(ids(alone)).startswith(whole)
    assert len(whole.encode()) > len(whole), "it says such characters"
    assert whole.count("\ufffd") == whole.endswith("\ufffd") == cut
    inside = 0
    for k in LENGTHS:
        chunks = stream(
            server.grpc_url, inputs(prompt, max_tokens=MAX_TOKENS, num_draft_tokens=k, stream=True, **more)
        )
        pieces = [chunk["text_output"].item().decode() for chunk in chunks]
        assert (ids(chunks), "".join(pieces)) == (ids(alone), whole), k
        assert "\ufffd" not in "".join(pieces[:-1]), k
        inside += sum("\ufffd" in TOKENIZER.decode(chunk["output_ids"].ravel().tolist()) for chunk in chunks)
    assert inside > 0, "the tokens of a chunk begin or end inside a character"


@many_at_once
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


GREEDY = [(what, more) for what, more, _ in REQUESTS if not {"top_k", "top_p"} & more.keys()]


@pytest.mark.parametrize(("what", "more"), GREEDY, ids=[what for what, _ in GREEDY])
def test_by_logits_every_greedy_step_is_the_target_s(
    server: TritonServer, alone: Alone, what: str, more: dict[str, Any]
) -> None:
    """Its log probs and logits too, which are not those that the draft handed over."""
    asked = {"max_tokens": MAX_TOKENS, **SCORES, **more}
    for prompt, k, expected in zip(PROMPTS, LENGTHS, alone(what, more), strict=False):
        call = inputs(prompt, num_draft_tokens=k, stream=True, use_draft_logits=TRUE, **asked)
        same_scores(expected, stream(server.grpc_url, call), f"{what}, k = {k}")


def test_by_logits_the_scores_of_a_sample_are_the_target_s(server: TritonServer) -> None:
    """On each round: the logits that the target engine by itself has after each of its beginnings."""
    asked: dict[str, Any] = {"max_tokens": MAX_TOKENS, "use_draft_logits": TRUE, "temperature": 0.8, "top_k": 40}
    for prompt, k in zip(PROMPTS, LENGTHS, strict=False):
        call = inputs(prompt, num_draft_tokens=k, stream=True, seed=k, end_id=-1, **asked, **SCORES)
        chunks = stream(server.grpc_url, call)
        drafted, accepted = (chunks[-1][f"total_{name}_tokens"].item() for name in ("draft", "accepted_draft"))
        assert 0 < accepted < drafted, "some are kept, some refused"
        tokens = ids(chunks)
        assert len(tokens) == MAX_TOKENS
        expected = after_each(server, TOKENIZER.encode(prompt).ids, tokens)
        logits = gathered(chunks, "generation_logits", (2048,))
        np.testing.assert_allclose(logits, expected, atol=1e-3)
        scaled = expected / np.float32(asked["temperature"])
        likely = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        log_probs = gathered(chunks, "output_log_probs", ())
        np.testing.assert_allclose(log_probs, likely[np.arange(len(tokens)), tokens], atol=1e-3)
        assert chunks[-1]["cum_log_probs"].item() == pytest.approx(float(log_probs.sum()), abs=1e-3)


def after_each(server: TritonServer, prompt: list[int], tokens: list[int]) -> Array:
    """The target's logits float32[n, V] before each of the tokens: a call with a row for each."""
    rows = padded([prompt + tokens[:i] for i in range(len(tokens))])
    one = np.ones((len(tokens), 1), np.int32)
    asked = {"request_output_len": one, "return_generation_logits": one.astype(np.bool_)}
    answer = unary(server.grpc_url, rows | asked, "tensorrt_llm")
    return answer["generation_logits"].reshape(len(tokens), -1)


def test_by_logits_sampling_is_reproducible(server: TritonServer) -> None:
    call = inputs(PROMPTS[0], num_draft_tokens=4, max_tokens=32, use_draft_logits=TRUE, **SAMPLED)
    assert ids(stream(server.grpc_url, call)) == ids(stream(server.grpc_url, call))


def test_by_logits_the_distribution_is_the_target_s(server: TritonServer) -> None:
    """A short prompt's third token and, of a later round, its fifth: their frequency over many seeds, against the
    target alone."""
    many, length = 500, 5
    settings: dict[str, Any] = {"temperature": 1.3, "top_k": 4, "top_p": 0.95, "max_tokens": length, "end_id": -1}

    def drawn(k: int) -> tuple[list[Counter[int]], int, int]:
        """Tokens by their place, and how many were drafted and accepted."""
        places, drafted, accepted = [Counter[int]() for _ in range(length)], 0, 0
        for first in range(0, many, 50):
            seeds = [1 + 100_000 * k + first + i for i in range(50)]
            call = inputs(*["def f("] * 50, num_draft_tokens=k, seed=seeds, **settings)
            if k:
                call["use_draft_logits"] = np.ones((50, 1), np.bool_)
            for response in stream(server.grpc_url, call):
                for counts, token in zip(places, response["output_ids"].reshape(-1).tolist(), strict=True):
                    counts[token] += 1
                drafted += response["total_draft_tokens"].item()
                accepted += response["total_accepted_draft_tokens"].item()
        return places, drafted, accepted

    (alone, *_), (speculated, drafted, accepted) = drawn(0), drawn(2)
    assert 0.1 * drafted < accepted < 0.9 * drafted, "some are kept, some refused"
    for place in (2, 4):
        tokens = sorted(alone[place] | speculated[place])
        a, b = (np.array([counts[place][token] for token in tokens], float) for counts in (alone, speculated))
        statistic = float((((a - b) ** 2) / (a + b)).sum())  # two samples of equal size: chi-square, len - 1 degrees
        freedom = len(tokens) - 1
        print(f"token {place + 1}: chi-square {statistic:.0f} of {freedom} degrees")
        assert statistic < freedom + 5 * np.sqrt(2 * freedom), (statistic, freedom)


def test_shared_memory_is_bounded(server: TritonServer) -> None:
    """What a request brought there goes with it, or soon after: logits are 8 KiB a token.

    For hours: tests/bench/soak.py.
    """

    def play(times: int) -> int:
        for _ in range(times):
            stream(server.grpc_url, inputs(PROMPTS[0], max_tokens=MAX_TOKENS, stream=True, **SCORES))
        return sum(path.stat().st_size for path in Path("/dev/shm").glob(f"{server.shm_prefix}*"))

    before = play(20)
    assert play(20) <= 1.1 * before
