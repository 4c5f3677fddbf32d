"""The engine's tokenizer as the session uses it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from reference_llm.llmapi.llm import Tokenizer
from tandem_serving.llmapi.codec import codec, longest_token

PAIR = Path(__file__).parents[4] / "images/reference/pair/target"


class Slow:
    """A tokenizer that reads a long prompt until it may go on."""

    began, go_on = threading.Event(), threading.Event()

    def encode(self, text: str, **_: bool) -> list[int]:
        self.began.set()
        assert self.go_on.wait(60)
        return [1]

    def decode(self, ids: list[int], **_: bool) -> str:
        return "text"

    def get_vocab(self) -> dict[str, int]:
        return {"text": 1}


def test_streams_do_not_wait_for_a_long_prompt() -> None:
    made = codec(Slow())
    with ThreadPoolExecutor(2) as threads:
        read = threads.submit(made.encode, "a long one")
        assert Slow.began.wait(60)
        try:
            assert threads.submit(made.decode, [1]).result(timeout=60) == "text"
        finally:
            Slow.go_on.set()
        assert read.result() == [1]


def test_both_of_its_tokenizers_are_the_same() -> None:
    made = codec(Tokenizer(PAIR))
    assert made.decode(made.encode("def add(a, b):")) == "def add(a, b):"


def test_which_words_are_special_tokens() -> None:
    words = ("return", "<|endoftext|>", "def <|endoftext|>", "", " ", "<|nothing|>")
    assert codec(Tokenizer(PAIR)).special(words) == {0: "<|endoftext|>"}


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_longest_token(wrapped: bool) -> None:
    plain = SimpleNamespace(get_vocab=lambda: {"a": 0, "four": 1})
    assert longest_token(SimpleNamespace(tokenizer=plain) if wrapped else plain) == 4
