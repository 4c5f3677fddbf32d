"""Upstream's own test of speculative decoding (`speculative_decoding_test.py`): the texts of `ensemble`, its control,
beside those of `tensorrt_llm_bls`, or of a client that runs the loop itself, for each prompt.

Written from what it sends; the test itself is not here.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as triton

from triton import bls_client as bls
from triton.bls_client import stream, unary, words
from triton.harness import TritonServer
from triton.loop_client import Loop, Tensors
from triton.upstream import MAX_TOKENS, PROMPTS, SERVERS, TOKENIZER, answer, completion, number, repository

pytestmark = pytest.mark.nightly

SPECIAL = "<|endoftext|>"
TEXTS = [SPECIAL + prompt if i % 6 == 1 else prompt for i, prompt in enumerate(PROMPTS)]
"""Of two the tokens are decoded to less than what was sent."""


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    with TritonServer(repository(tmp_path_factory.mktemp("comparison"), request.param)) as server:
        yield server


def asked(prompt: str, stop: list[str]) -> Tensors:
    """What upstream's completion client sends."""
    no = np.array([[False]])
    stopping = {"stop_words": words(stop)} if stop else {}
    return completion(
        prompt,
        stream=no,
        exclude_input_in_output=no,
        beam_width=number(1, np.int32),
        temperature=number(1),
        **stopping,
    )


def control(server: TritonServer, prompt: str, stop: list[str]) -> str:
    """The text of the target alone."""
    whole: bytes = unary(server.grpc_url, asked(prompt, stop), "ensemble")["text_output"][0]
    return whole.decode()


def own_words(ids: list[int]) -> list[str]:
    """Words that a sequence says as their own tokens, where it says them first."""
    found = []
    for end, token in enumerate(ids, 1):
        word, before = TOKENIZER.decode([token]), TOKENIZER.decode(ids[: end - 1])
        if TOKENIZER.encode(word).ids == [token] and (before + word).find(word) == len(before):
            found.append(word)
    return found


@pytest.fixture(scope="module")
def stops(server: TritonServer) -> list[list[str]]:
    """A stop word of each prompt, or none."""
    found = [own_words(answer(server, prompt)[1]) for prompt in TEXTS]
    return [each[len(each) // 2 :][:1] if i % 4 else [] for i, each in enumerate(found)]


def test_the_bls_says_what_its_control_says(server: TritonServer, stops: list[list[str]]) -> None:
    failed, stopped = [], 0
    for prompt, stop in zip(TEXTS, stops, strict=True):
        expected = control(server, prompt, stop)
        stopped += expected != control(server, prompt, [])
        sent = asked(prompt, stop) | {"num_draft_tokens": number(5, np.int32)}
        text = unary(server.grpc_url, sent)["text_output"][0].decode()
        failed += [(text, expected)] if text != expected else []
        streamed = bls.text(stream(server.grpc_url, sent | {"stream": np.array([[True]])}))
        assert text.endswith(streamed)
        assert TOKENIZER.decode(TOKENIZER.encode(prompt).ids) + streamed == text
    assert stopped > 6, "stop words that come"
    assert not failed, f"{len(failed)} of {len(TEXTS)}"


@pytest.mark.parametrize("server", ["reference", "TensorRT"], indirect=True)
def test_a_loop_of_the_client_says_what_its_control_says(server: TritonServer, stops: list[list[str]]) -> None:
    failed = []
    with triton.InferenceServerClient(server.grpc_url) as client:
        for prompt, stop in zip(TEXTS, stops, strict=True):
            loop = Loop(client, prompt, MAX_TOKENS, 5, words={"STOP_WORDS_DICT": words(stop)} if stop else {})
            text, expected = loop.run(), control(server, prompt, stop)
            failed += [(text, expected)] if text != expected else []
    assert not failed, f"{len(failed)} of {len(TEXTS)}"


def holds(ids: list[int], part: list[int]) -> bool:
    """Whether some tokens come one after the other."""
    return any(ids[i : i + len(part)] == part for i in range(len(ids)))


@pytest.mark.parametrize("prompt", PROMPTS[:4])
def test_letters_of_other_tokens_end_the_text_of_the_bls(server: TritonServer, prompt: str) -> None:
    """As upstream's looks for stop words in its text; its engine, and so its ensemble, knows their tokens alone."""
    whole, ids = answer(server, prompt)
    new = whole.removeprefix(prompt)
    places = (new[place : place + 6] for place in range(3, len(new)))
    word = next(word for word in places if not holds(ids, TOKENIZER.encode(word).ids))
    sent = asked(prompt, [word])
    text = unary(server.grpc_url, sent)["text_output"][0].decode()
    assert text == prompt + new[: new.index(word) + len(word)]
    assert control(server, prompt, [word]) == whole
    chunks = stream(server.grpc_url, sent | {"stream": np.array([[True]])})
    assert prompt + bls.text(chunks) == text
    said = bls.ids(chunks)
    assert said == ids[: len(said)]
    assert TOKENIZER.decode(said).startswith(bls.text(chunks)), "the last token may say more"


def test_a_stop_word_may_begin_in_the_prompt(server: TritonServer) -> None:
    """Engines look for it in the whole sequence."""
    tried = 0
    for prompt in PROMPTS:
        start, ids = TOKENIZER.encode(prompt).ids, answer(server, prompt)[1]
        for end in range(2, MAX_TOKENS):
            word = TOKENIZER.decode(ids[end - 2 : end])
            begun = prompt + TOKENIZER.decode(ids[: end - 1])
            as_said = TOKENIZER.encode(word).ids == ids[end - 2 : end]
            if as_said and TOKENIZER.encode(begun).ids == start + ids[: end - 1]:
                expected = control(server, begun, [word])
                assert expected == begun + TOKENIZER.decode(ids[end - 1 : end])
                assert unary(server.grpc_url, asked(begun, [word]))["text_output"][0].decode() == expected
                tried += 1
                break
    assert tried > 1
