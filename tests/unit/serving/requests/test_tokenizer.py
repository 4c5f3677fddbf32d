import threading

import numpy as np
import pytest
from tokenizers import processors

from support.serving.model_folders import ModelFolder, byte_level
from tandem_serving.bls.request import BlsParser, RequestLimits
from tandem_serving.errors import RequestError
from tandem_serving.requests.tokenizer import Tokenizer


def test_a_long_text_does_not_hold_up_other_threads(tokenizer: Tokenizer) -> None:
    """With the interpreter's lock held, a megabyte would stop all streams for more than a second."""
    turns, over = 0, threading.Event()

    def others() -> None:
        nonlocal turns
        while not over.wait(0.001):
            turns += 1

    thread = threading.Thread(target=others)
    thread.start()
    before = turns
    ids = tokenizer.encode("def add(a, b):\n    return a + b\n" * 20_000)
    meanwhile = turns - before
    over.set()
    thread.join()
    assert len(ids) > 100_000
    assert meanwhile > 5, "one as it begins, one as it ends: else they had to wait"


def test_a_text_beyond_what_the_limit_can_hold_is_not_tokenized(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = BlsParser(tokenizer, RequestLimits(max_sequence_len=128, max_draft_len=4, vocab_size=300))
    most = tokenizer.most_characters(128)
    tensors = {"max_tokens": np.array([[1]], np.int32)}
    with pytest.raises(RequestError, match=r"\d+ tokens and max_tokens 1"):
        parser.parse(tensors | {"text_input": np.array([[b"x" * most]], np.object_)})
    monkeypatch.delattr(Tokenizer, "encode")
    with pytest.raises(RequestError, match=f"{most + 1} characters are more than the model's limit of 128 tokens"):
        parser.parse(tensors | {"text_input": np.array([[b"x" * (most + 1)]], np.object_)})


def test_no_token_stands_for_more_characters_than_the_longest(tokenizer: Tokenizer) -> None:
    texts = ["def add(a, b):\n    return a + b\n", "naïve 漢字 🙂", "for i in range(10):\n"]
    for text in texts:
        assert len(text) <= tokenizer.most_characters(len(tokenizer.encode(text)))


def test_a_text_stays_whole_and_alone_whatever_its_tokenizer_was_saved_with(model_folder: ModelFolder) -> None:
    """Training scripts leave truncation and padding in tokenizer.json."""
    text, saved = "def add(a, b):\n", byte_level()
    expected = saved.encode(text).ids
    saved.enable_truncation(4)
    assert len(saved.encode(text).ids) == 4 < len(expected)
    assert Tokenizer(model_folder("truncates", saved)).encode(text) == expected
    saved.no_truncation()
    saved.enable_padding(length=100)
    assert len(saved.encode(text).ids) == 100
    assert Tokenizer(model_folder("pads", saved)).encode(text) == expected


def test_words_without_a_token_are_left_out(tokenizer: Tokenizer) -> None:
    assert tokenizer.word_list(["", "return", ""]).tolist() == tokenizer.word_list(["return"]).tolist()
    assert tokenizer.word_list([""]).shape == (2, 0)


def test_words_to_look_for_have_no_begin_token(model_folder: ModelFolder) -> None:
    """What a model wants at the beginning of a text stands before no word within it."""
    begins = byte_level()
    begins.post_processor = processors.TemplateProcessing("<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    tokenizer = Tokenizer(model_folder("begins", begins))
    text, word = tokenizer.encode("return"), tokenizer.word_list(["return"])[0].tolist()
    assert text == [0, *word]
