"""Upstream's clients against the real server with the reference engine: the same calls, flags and tensors.

Written from the contract of upstream's models; the clients themselves are not here.
"""

import json
import queue
import re
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from triton.bls_client import SECONDS, Array, infer_inputs, stream, unary, words
from triton.harness import TritonServer
from triton.loop_client import Loop, Tensors
from triton.upstream import (
    MAX_TOKENS,
    PROMPTS,
    SERVERS,
    TOKENIZER,
    UNARY,
    answer,
    completion,
    number,
    repository,
)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer(repository(tmp_path_factory.mktemp("upstream"), request.param)) as server:
        yield server


@pytest.fixture
def client(server: TritonServer) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.grpc_url) as client:
        yield client


# --- a client that runs the loop itself ---------------------------------------------------------
each_profile = pytest.mark.parametrize("server", ["reference", "TensorRT"], indirect=True)
"""For what is the same however the BLS accepts draft tokens."""


@each_profile
@pytest.mark.nightly
@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_loop_of_unary_calls_is_the_bls(server: TritonServer, client: triton.InferenceServerClient, k: int) -> None:
    calls = 0
    for prompt in PROMPTS[k % 3 :: 3]:
        loop = Loop(client, prompt, MAX_TOKENS, k)
        text = loop.run()
        assert (text, loop.ids[len(loop.prompt_ids) :]) == answer(server, prompt)
        calls += loop.calls
    assert calls < 4 * MAX_TOKENS, "no draft token was accepted"


SAMPLING: list[tuple[str, Tensors]] = [
    ("temperature 1 is upstream's default", {"temperature": number(1)}),
    ("penalties", {name: number(1.3) for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")}),
    ("a mild penalty", {"repetition_penalty": number(1.05), "temperature": number(0.7)}),
]


@each_profile
@pytest.mark.nightly
@pytest.mark.parametrize(("reason", "sampling"), SAMPLING, ids=[reason for reason, _ in SAMPLING])
def test_a_loop_with_sampling_parameters(
    server: TritonServer, client: triton.InferenceServerClient, reason: str, sampling: Tensors
) -> None:
    for prompt in PROMPTS[:4]:
        text = Loop(client, prompt, MAX_TOKENS, 5, sampling=sampling).run()
        assert text == answer(server, prompt, **sampling)[0]


def single_token_words(ids: list[int]) -> dict[int, str]:
    """Tokens of `ids` whose text is a word of one token, in their order."""
    texts = {token: TOKENIZER.decode([token]) for token in ids}
    return {token: text for token, text in texts.items() if TOKENIZER.encode(text).ids == [token]}


@each_profile
@pytest.mark.nightly
@pytest.mark.parametrize("k", [1, 8])
def test_a_loop_with_words(server: TritonServer, client: triton.InferenceServerClient, k: int) -> None:
    for prompt in PROMPTS[:4]:
        _, ids = answer(server, prompt)
        token, word = list(single_token_words(ids).items())[-1]
        stopped = Loop(client, prompt, MAX_TOKENS, k, words={"STOP_WORDS_DICT": words([word])})
        stopped.run()
        new = stopped.ids[len(stopped.prompt_ids) :]
        assert new == ids[: ids.index(token) + 1], "up to the stop word, which counts"
        assert answer(server, prompt, stop_words=words([word]))[0] == prompt + TOKENIZER.decode(new)
        several = {
            "STOP_WORDS_DICT": words(["never to be seen", "nor this"]),
            "BAD_WORDS_DICT": words([word, "self"]),
        }
        text = Loop(client, prompt, MAX_TOKENS, k, words=several).run()
        assert text == answer(server, prompt, bad_words=several["BAD_WORDS_DICT"])[0]
        assert word not in text.removeprefix(prompt)


@each_profile
@pytest.mark.nightly
def test_a_loop_with_end_and_pad(server: TritonServer, client: triton.InferenceServerClient) -> None:
    for place, prompt in enumerate(PROMPTS[:6], start=2):
        _, ids = answer(server, prompt)
        end = number(ids[place], np.int32)
        loop = Loop(client, prompt, MAX_TOKENS, 4, words={"END_ID": end, "PAD_ID": number(3, np.int32)})
        text = loop.run()
        assert loop.ids[len(loop.prompt_ids) :] == ids[: ids.index(ids[place])]
        assert text == answer(server, prompt, end_id=end)[0]


@pytest.mark.nightly
def test_a_loop_with_the_drafts_logits(server: TritonServer, client: triton.InferenceServerClient) -> None:
    for prompt in PROMPTS[:4]:
        assert Loop(client, prompt, MAX_TOKENS, 4, draft_logits=True).run() == answer(server, prompt)[0]


@each_profile
def test_clients_with_the_same_request_id_do_not_disturb_each_other(server: TritonServer) -> None:
    """Upstream's client says "1" unless it is told otherwise."""

    def run(prompt: str) -> str:
        with triton.InferenceServerClient(server.grpc_url) as client:
            return Loop(client, prompt, MAX_TOKENS, 4, request_id="1").run()

    expected = [answer(server, prompt)[0] for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        assert list(threads.map(run, PROMPTS)) == expected


# --- the engines, called once a request ---------------------------------------------------------
def engine_call(ids: list[list[int]], length: int, **more: Array) -> Tensors:
    rows = np.zeros((len(ids), max(map(len, ids))), np.int32)
    for row, each in zip(rows, ids, strict=True):
        row[: len(each)] = each
    lengths = np.array([[len(each)] for each in ids], np.int32)
    return {"input_ids": rows, "input_lengths": lengths, "request_output_len": 0 * lengths + length, **more}


@pytest.mark.parametrize("model", ["tensorrt_llm", "tensorrt_llm_draft"])
def test_rows_of_a_unary_request_come_in_one_response(server: TritonServer, model: str) -> None:
    prompts = [TOKENIZER.encode(prompt).ids for prompt in PROMPTS[:3]]
    together = unary(server.grpc_url, engine_call(prompts, 5), model)
    for i, prompt in enumerate(prompts):
        alone = unary(server.grpc_url, engine_call([prompt], 5), model)
        length = together["sequence_length"][i, 0]
        assert together["output_ids"][i, 0, :length].tolist() == alone["output_ids"].reshape(-1).tolist()


def test_an_engine_that_answers_once_does_not_stream(server: TritonServer) -> None:
    call = engine_call([TOKENIZER.encode(PROMPTS[0]).ids], 5, streaming=np.array([[True]]))
    with pytest.raises(InferenceServerException, match=r"not decoupled and answers a request once.*speculative_bls"):
        unary(server.grpc_url, call, "tensorrt_llm")


def test_a_stop_request_is_answered_and_ends_the_call(client: triton.InferenceServerClient) -> None:
    ended: queue.Queue[Any] = queue.Queue()
    ids = TOKENIZER.encode(PROMPTS[0]).ids[-40:]
    call = infer_inputs(engine_call([ids], 1900))
    client.async_infer("tensorrt_llm", call, lambda result, error: ended.put(error), request_id="9")
    stop = infer_inputs(engine_call([[0]], 1, stop=np.array([[True]])))
    deadline = time.monotonic() + SECONDS
    while ended.empty():  # the first may come before the call does
        result = client.infer("tensorrt_llm", stop, request_id="9", client_timeout=SECONDS)
        assert list(result.get_response().outputs) == []
        assert time.monotonic() < deadline
        time.sleep(0.05)
    error = ended.get()
    assert isinstance(error, InferenceServerException), "it was not stopped"
    assert error.message() == "the request was cancelled"


def test_who_goes_away_ends_no_call_of_another_client_with_the_same_id(server: TritonServer) -> None:
    ended: queue.Queue[Any] = queue.Queue()
    prompt = TOKENIZER.encode(PROMPTS[0]).ids
    call = infer_inputs(engine_call([prompt], 300, end_id=number(-1, np.int32)))
    url, client = server.grpc_url, triton.InferenceServerClient
    with client(url) as leaves, client(url) as stays:
        gone = leaves.async_infer("tensorrt_llm", call, lambda result, error: None, request_id="1")
        stays.async_infer("tensorrt_llm", call, lambda result, error: ended.put(error or result), request_id="1")
        time.sleep(0.3)
        gone.cancel()
        answer = ended.get(timeout=240)
    assert isinstance(answer, triton.InferResult), answer
    assert answer.as_numpy("sequence_length").item() == len(prompt) + 300


# --- clients that ask for completions -----------------------------------------------------------
def over_a_stream(server: TritonServer, model: str, tensors: Tensors, *outputs: str) -> list[Tensors]:
    """Responses, asked for and collected as upstream's end-to-end client does: over a stream that it closes."""
    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    wanted = [triton.InferRequestedOutput(name) for name in ("text_output", *outputs)]
    with triton.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: arrived.put((result, error)))
        client.async_stream_infer(model, infer_inputs(tensors), outputs=wanted, request_id="")
        client.stop_stream()
    responses = []
    while not arrived.empty():
        result, error = arrived.get()
        if error:
            raise error
        responses.append({output.name: result.as_numpy(output.name) for output in result.get_response().outputs})
    return responses


@pytest.mark.parametrize("model", UNARY)
def test_a_completion(server: TritonServer, model: str) -> None:
    for prompt in PROMPTS[:6]:
        expected = answer(server, prompt, num_draft_tokens=number(0, np.int32))[0]
        [response] = over_a_stream(server, model, completion(prompt, stream=np.array([[False]])))
        assert response["text_output"].shape == (1,), "clients take the first element for the text"
        assert response["text_output"][0].decode() == expected
        assert expected.startswith(prompt)
        alone = completion(prompt, exclude_input_in_output=np.array([[True]]))
        assert unary(server.grpc_url, alone, model)["text_output"][0].decode() == expected.removeprefix(prompt)


@pytest.mark.parametrize("model", UNARY)
def test_scores_are_those_of_the_target_alone(server: TritonServer, model: str) -> None:
    flags = {f"return_{what}": np.array([[True]]) for what in ("log_probs", "generation_logits")}
    names = ("cum_log_probs", "output_log_probs", "generation_logits")
    [response] = over_a_stream(server, model, completion(PROMPTS[0], **flags), *names)
    _, ids = answer(server, PROMPTS[0])
    logits = response["generation_logits"]
    assert logits.shape == (1, 1, MAX_TOKENS, 2048)
    assert logits[0, 0].argmax(axis=1).tolist() == ids
    scores = logits[0, 0].astype(np.float64)
    expected = scores[range(MAX_TOKENS), ids] - np.log(np.exp(scores).sum(axis=1))
    np.testing.assert_allclose(response["output_log_probs"], expected[None, None], atol=1e-4)
    np.testing.assert_allclose(response["cum_log_probs"], [[expected.sum()]], atol=1e-3)


@pytest.mark.parametrize("model", [*UNARY, "speculative_bls"])
def test_performance_figures_of_a_request(server: TritonServer, model: str) -> None:
    times = [f"{when}_time_ns" for when in ("arrival", "first_scheduled", "first_token", "last_token")]
    blocks = [f"kv_cache_{what}_blocks" for what in ("alloc_total", "alloc_new", "reused")]
    rest = ["acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens"]
    stream = {"stream": np.array([[True]])} if model == "speculative_bls" else {}
    sent = completion(PROMPTS[5], return_perf_metrics=np.array([[True]]), **stream)
    before = time.monotonic_ns()
    [*earlier, response] = over_a_stream(server, model, sent, *times, *blocks, *rest)
    assert not any(name in chunk for chunk in earlier for name in times)
    told = [response[name][0, 0] for name in times]
    assert before < told[0] <= told[1] < told[2] < told[3] < time.monotonic_ns()
    total, new, reused = (response[name][0, 0] for name in blocks)
    assert total == new + reused > 0
    rate, accepted, drafted = (response[name][0, 0] for name in rest)
    if model == "ensemble":
        assert (rate, accepted, drafted) == (0, 0, 0), "the target alone drafts nothing"
    else:
        assert rate == pytest.approx(accepted / drafted)


@pytest.mark.parametrize("model", UNARY)
def test_prompts_of_one_request(server: TritonServer, model: str) -> None:
    rows = [completion(prompt) for prompt in PROMPTS[:3]]
    together = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    texts = unary(server.grpc_url, together, model)["text_output"]
    assert [text.decode() for text in texts] == [answer(server, prompt)[0] for prompt in PROMPTS[:3]]


def test_a_streaming_client(server: TritonServer) -> None:
    for prompt in PROMPTS[:4]:
        sent = completion(prompt, stream=np.array([[True]]), num_draft_tokens=number(4, np.int32))
        chunks = over_a_stream(server, "speculative_bls", sent)
        text = "".join(chunk["text_output"][0].decode() for chunk in chunks)
        assert len(chunks) > 1
        assert prompt + text == answer(server, prompt)[0]


@pytest.mark.parametrize("model", UNARY)
def test_streaming_is_refused_where_there_is_one_answer(server: TritonServer, model: str) -> None:
    with pytest.raises(InferenceServerException, match="speculative_bls"):
        over_a_stream(server, model, completion("def f", stream=np.array([[True]])))


@pytest.mark.parametrize("model", UNARY)
def test_http_generate(server: TritonServer, model: str) -> None:
    """As upstream's documentation shows it: no outputs are named, so that all that there are come."""
    body = json.dumps({"text_input": PROMPTS[0], "max_tokens": MAX_TOKENS, "bad_words": "", "stop_words": ""})
    url = f"{server.http_url}/v2/models/{model}/generate"
    with urllib.request.urlopen(url, body.encode(), timeout=SECONDS) as reply:
        assert json.loads(reply.read())["text_output"] == answer(server, PROMPTS[0])[0]


# --- every input of upstream's tensorrt_llm_bls -------------------------------------------------
TRUE = np.array([[True]])
TEXT_ONLY = "this service takes text only"
TUNING = "virtual tokens mean nothing to the draft engine"
# The BLS passes these on; this engine has neither.
NO_LORA, NO_GUIDE = "there is no LoRA", "there is no guided decoding"
# name, a value, "" where it is accepted, else what the BLS says, and what the ensemble says
INPUTS: list[tuple[str, Array, str, str]] = [
    ("decoder_text_input", words(["x"]), "encoder-decoder models", "DECODER_QUERY is not supported"),
    ("image_input", np.zeros((1, 1, 3, 2, 2), np.float16), TEXT_ONLY, "no such input"),
    ("image_bytes_input", np.zeros((1, 1, 2, 2, 3), np.uint8), TEXT_ONLY, "no such input"),
    ("image_url_input", words(["http://x"]), TEXT_ONLY, "no such input"),
    ("video_bytes_input", np.zeros((1, 1, 2, 2, 3), np.uint8), TEXT_ONLY, "no such input"),
    ("bad_words", words(["import", "self"]), "", ""),
    ("stop_words", words(["return", "never"]), "", ""),
    ("exclude_input_in_output", TRUE, "", ""),
    ("end_id", number(0, np.int32), "", ""),
    ("pad_id", number(0, np.int32), "", ""),
    ("top_k", number(1, np.int32), "", ""),
    ("top_p", number(0.5), "", ""),
    ("temperature", number(0.5), "", ""),
    ("length_penalty", number(1), "", ""),
    ("repetition_penalty", number(1.1), "", ""),
    ("min_tokens", number(2, np.int32), "", ""),
    ("presence_penalty", number(0.5), "", ""),
    ("frequency_penalty", number(0.5), "", ""),
    ("seed", number(7, np.uint64), "", ""),
    ("return_log_probs", TRUE, "", ""),
    ("return_context_logits", TRUE, "ask the tensorrt_llm model", "keeps no logits of prompts"),
    ("return_generation_logits", TRUE, "", ""),
    ("return_perf_metrics", TRUE, "", ""),
    ("return_num_input_tokens", TRUE, "", ""),
    ("return_num_output_tokens", TRUE, "", ""),
    ("num_return_sequences", number(1, np.int32), "", ""),
    ("num_return_sequences", number(2, np.int32), "send the prompt several times", "returns one sequence, send 1"),
    ("beam_width", number(1, np.int32), "", ""),
    ("beam_width", number(2, np.int32), "verified against one sequence", "returns one sequence, send 1"),
    ("stream", np.array([[False]]), "", ""),
    ("prompt_embedding_table", np.zeros((1, 2, 4), np.float16), TUNING, "decoder-only text models"),
    ("prompt_vocab_size", number(2, np.int32), TUNING, "decoder-only text models"),
    ("prompt_table_extra_id", number(2, np.uint64), TUNING, "PROMPT_TABLE_EXTRA_ID is not supported"),
    ("embedding_bias_words", words(["return"]), "send one weight a word", "send one weight a word"),
    ("embedding_bias_weights", number(2), "send one weight a word", "send one weight a word"),
    ("num_draft_tokens", number(3, np.int32), "", "no such input"),
    ("use_draft_logits", TRUE, "", "no such input"),
    ("lora_task_id", number(1, np.uint64), NO_LORA, NO_LORA),
    ("lora_weights", np.zeros((1, 2, 4), np.float16), "send all three", NO_LORA),
    ("lora_config", np.zeros((1, 2, 3), np.int32), "send all three", NO_LORA),
    ("guided_decoding_guide_type", words(["json"]), NO_GUIDE, NO_GUIDE),
    ("guided_decoding_guide", words(["{}"]), "without guided_decoding_guide_type", NO_GUIDE),
]
CASES = [
    (model, name, value, said[model == "ensemble"])
    for name, value, *said in INPUTS
    for model in ("speculative_bls", *UNARY)
]


@each_profile
@pytest.mark.parametrize(
    ("model", "name", "value", "refusal"),
    CASES,
    ids=[f"{model}-{name}-{value.size}" for model, name, value, _ in CASES],
)
def test_each_input_is_taken_or_refused_by_name(
    server: TritonServer, model: str, name: str, value: Array, refusal: str
) -> None:
    if refusal == "no such input":
        refusal = f"unexpected inference input '{name}' for model '{model}'"
    ask = stream if model == "speculative_bls" else unary
    sent = completion(PROMPTS[0], **{name: value})
    if not refusal:
        response = ask(server.grpc_url, sent, model)
        assert (response[0] if isinstance(response, list) else response)["text_output"].size == 1
        return
    with pytest.raises(InferenceServerException, match=re.escape(refusal)) as error:
        ask(server.grpc_url, sent, model)
    assert name.split("_")[0] in error.value.message().lower(), "the input is named"
    assert "Traceback" not in error.value.message()


def test_the_table_has_every_input(client: triton.InferenceServerClient) -> None:
    named = {name for name, *_ in INPUTS} | {"text_input", "max_tokens"}
    beyond_upstream = {"input_ids", "input_lengths", "min_length", "return_refused_draft_text"}
    config = client.get_model_config("tensorrt_llm_bls").config
    assert {tensor.name for tensor in config.input} - beyond_upstream == named
    config = client.get_model_config("ensemble").config
    unknown = {name for name, _, _, said in INPUTS if said == "no such input"}
    assert {tensor.name for tensor in config.input} == named - unknown


def test_bias_goes_through_the_ensemble(server: TritonServer) -> None:
    bias = {"embedding_bias_words": words(["return"]), "embedding_bias_weights": number(50)}
    [biased] = over_a_stream(server, "ensemble", completion("def f", **bias))
    assert biased["text_output"][0].decode() == answer(server, "def f", **bias)[0]
    assert "return" in biased["text_output"][0].decode()
