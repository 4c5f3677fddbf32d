from pathlib import Path

import pytest
import tokenizers

from support.serving.model_folders import byte_fallback, byte_level
from tandem_serving.requests.text import Detokenizer, StopText, StopTokens, TextStream
from tandem_serving.requests.tokenizer import Tokenizer

TEXTS = [
    ("def add(a, b):\n    return a + b\n", "plain code"),
    ("naïve café — 東京 🗼👩‍👩‍👧 \u0301e", "characters of two to four bytes, joined ones, combining marks"),
    ("🗼" * 30, "one long run of four-byte characters"),
    ("東京都" * 20, "one long run of three-byte characters"),
    (" leading and trailing ", "spaces at both ends"),
    ("the cats\nthe cat", "words with leading-space marks"),
]
MADE = [(byte_level(), "byte level"), (byte_fallback(), "byte fallback")]


@pytest.mark.parametrize(("text", "reason"), TEXTS, ids=[reason for _, reason in TEXTS])
@pytest.mark.parametrize("tokenizer", [t for t, _ in MADE], ids=[name for _, name in MADE])
@pytest.mark.parametrize("split", [0, 1, 3, 7, 20])
def test_deltas_are_whole_characters_and_add_up(
    text: str, reason: str, tokenizer: tokenizers.Tokenizer, split: int
) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    prompt, rest = ids[:split], ids[split:]
    whole = tokenizer.decode(ids)
    starts = [tokenizer.decode(prompt[: split - cut]) for cut in range(min(split, 4) + 1)]
    before = next(start for start in starts if not start.endswith("\ufffd"))
    detokenizer = Detokenizer(tokenizer.decode, prompt)
    deltas = [detokenizer.push([token]) for token in rest]
    assert detokenizer.flush() == ""
    assert before + "".join(deltas) == whole, reason
    assert not any("\ufffd" in delta for delta in deltas)


@pytest.mark.parametrize("sizes", [[9, 1], [10, 2], [2, 9, 3]], ids=str)
def test_the_space_behind_special_tokens_stays(sizes: list[int]) -> None:
    tokenizer = byte_fallback()
    tokenizer.add_special_tokens(["</s>"])
    the, end, cat = (tokenizer.get_vocab()[token] for token in ("▁the", "</s>", "▁cat"))
    ids = [the] * (sum(sizes) - sizes[-1]) + [end] * sizes[-1] + [cat] * 3
    detokenizer = Detokenizer(lambda tokens: str(tokenizer.decode(tokens)), [])
    steps = [ids[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]
    text = "".join(detokenizer.push(step) for step in [*steps, [cat], [cat, cat]])
    assert text == tokenizer.decode(ids) == " ".join(["the"] * ids.count(the) + ["cat"] * 3)


@pytest.mark.parametrize("prompt", ["caf\ufffd", "caf\ufffdx", "\ufffd", "a\ufffd\ufffd b", "🗼\ufffdé"])
@pytest.mark.parametrize("tokenizer", [t for t, _ in MADE], ids=[name for _, name in MADE])
def test_replacement_characters_of_the_prompt_are_not_repeated(prompt: str, tokenizer: tokenizers.Tokenizer) -> None:
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    detokenizer = Detokenizer(tokenizer.decode, ids, prompt)
    new = tokenizer.encode("s🗼", add_special_tokens=False).ids
    assert "".join(detokenizer.push([token]) for token in new) == "s🗼"


def test_incomplete_character_comes_with_the_flush_as_replacement() -> None:
    tokenizer = byte_level(258)
    ids = tokenizer.encode("ab🗼").ids
    detokenizer = Detokenizer(tokenizer.decode, [])
    assert [detokenizer.push([token]) for token in ids[:-1]] == ["a", "b", "", "", ""]
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


STOPS = [
    # words, pieces, text before the word, the word that was found, reason
    (["STOP"], ["abc ST", "OP more"], "abc ", "STOP", "across two pieces"),
    (["STOP"], ["abc S", "T", "O", "P"], "abc ", "STOP", "across four pieces"),
    (["STOP"], ["abc ST", "AND"], "abc STAND", "", "looked like one"),
    (["STOP"], ["STO"], "STO", "", "never completed"),
    (["\n\n", "END"], ["a\n", "b END", "x"], "a\nb ", "END", "several words, the second one"),
    (["aab"], ["aaab"], "a", "aab", "begins inside a failed match"),
    (["aab"], ["a", "a", "a", "b"], "a", "aab", "the same, piece by piece"),
    (["abcd", "bc"], ["a", "bcd"], "a", "bc", "the one whose end comes first"),
    (["abcd", "bc"], ["abcd"], "a", "bc", "the same in one piece"),
    (["c", "bc"], ["abc"], "a", "bc", "of those that end together the longest"),
    (["", "x"], ["abc"], "abc", "", "an empty word is none"),
    ([], ["abc"], "abc", "", "no words"),
]


def pushed(stop: StopText, pieces: list[str]) -> list[str]:
    """What may be sent with each piece, and at the end."""
    out = []
    for piece in pieces:
        text, found = stop.push(piece)
        out.append(text)
        if found:
            return out
    return [*out, stop.flush()]


@pytest.mark.parametrize(("words", "pieces", "before", "word", "reason"), STOPS, ids=[row[4] for row in STOPS])
def test_stop_words_that_are_cut(words: list[str], pieces: list[str], before: str, word: str, reason: str) -> None:
    stop = StopText(words)
    assert ("".join(pushed(stop, pieces)), stop.found) == (before, word), reason


@pytest.mark.parametrize(("words", "pieces", "before", "word", "reason"), STOPS, ids=[row[4] for row in STOPS])
def test_stop_words_that_are_kept(words: list[str], pieces: list[str], before: str, word: str, reason: str) -> None:
    stop = StopText(words, keep=True)
    sent = pushed(stop, pieces)
    assert ("".join(sent), stop.found) == (before + word, word), reason
    last = len(sent) - 1
    assert sent[:last] == pieces[:last], "nothing waits that may become one"


def test_a_word_s_tokens_may_begin_in_the_prompt_not_end_there() -> None:
    words = {(1, 2): "long", (2,): "short", (7,): "other"}
    assert [StopTokens(words, [0, 1]).push(token) for token in (2, 7, 3)] == ["long", "other", ""]
    assert StopTokens(words, [2]).push(3) == ""
    stop = StopTokens({(1, 1, 2): "word"}, [5])
    assert [stop.push(token) for token in (1, 1, 1, 2)] == ["", "", "", "word"]


def stream(words: list[str]) -> TextStream:
    """A stream over one-letter tokens, whose words are kept: token id is the code point."""
    return TextStream(Detokenizer(lambda ids: "".join(map(chr, ids)), []), StopText(words, keep=True))


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_draft_characters_lead_the_text() -> None:
    for words in ([], ["never"]):
        step = stream(words).push(ids("abc"), accepted=2, last=False)
        assert (step.text, step.draft_length, step.used, step.stopped) == ("abc", 2, 3, False)


def test_stop_word_drops_tokens_after_it() -> None:
    step = stream(["bc"]).push(ids("abcde"), accepted=4, last=False)
    assert (step.text, step.draft_length, step.used, step.stopped) == ("abc", 3, 3, True)


def test_last_step_sends_what_was_held() -> None:
    text = stream(["STOP"])
    text.stop = StopText(["STOP"])
    assert text.push(ids("aST"), accepted=0, last=False).text == "a"
    assert text.push([], accepted=0, last=True).text == "ST"


@pytest.mark.parametrize("keep", [True, False])
def test_a_word_ends_the_text_by_its_tokens_too(keep: bool) -> None:
    """A tokenizer may write it otherwise than it was sent; a special token has no text."""
    decode = {1: "a ", 2: "stop", 3: ""}
    for end, kept in (([2], "stop"), ([3], "")):
        words = {tuple(end): "STOP"}
        text = TextStream(
            Detokenizer(lambda ids: "".join(decode[token] for token in ids), []),
            StopText(words.values(), keep),
            StopTokens(words),
        )
        step = text.push([1, *end, 1], accepted=0, last=False)
        assert (step.text, step.used, step.stopped) == ("a " + kept, 2, True)
        assert text.stop.found == "STOP"


def test_all_of_the_token_that_ends_a_word_is_kept() -> None:
    """An engine that stops at the tokens of one word has not seen the letters of another within them."""
    decode = {1: "ab"}
    text = TextStream(
        Detokenizer(lambda ids: "".join(decode[token] for token in ids), []),
        StopText(["a", "ab"], keep=True),
        StopTokens({(1,): "ab"}),
    )
    assert text.push([1], accepted=0, last=False).text == "ab"


def test_character_belongs_to_the_token_that_completes_it(tmp_path: Path) -> None:
    made = byte_level(258)
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    tokens = tokenizer.encode("a🗼b")
    text = TextStream(Detokenizer(tokenizer.decode, []), StopText([]))
    # the draft wrote "a" and three of the four bytes of the tower, the target the fourth
    step = text.push(tokens[:5], accepted=4, last=False)
    assert (step.text, step.draft_length) == ("a🗼", 1)
