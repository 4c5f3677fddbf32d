from pathlib import Path

import pytest
import tokenizers

from tandem_serving.text import Detokenizer, Piece, StopText, TextStream
from tandem_serving.tokenizer import Tokenizer
from unit.serving.conftest import byte_fallback, byte_level

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
    # words, pieces, sent, stopped, reason
    (["STOP"], ["abc ST", "OP more"], "abc ", True, "across two pieces"),
    (["STOP"], ["abc S", "T", "O", "P"], "abc ", True, "across four pieces"),
    (["STOP"], ["abc ST", "AND"], "abc STAND", False, "looked like one"),
    (["STOP"], ["STO"], "STO", False, "never completed: comes with the flush"),
    (["\n\n", "END"], ["a\n", "b END", "x"], "a\nb ", True, "several words, the second one"),
    (["aab"], ["aaab"], "a", True, "begins inside a failed match"),
    (["aab"], ["a", "a", "a", "b"], "a", True, "the same, piece by piece"),
    (["abcd", "bc"], ["a", "bcd"], "a", True, "the one whose end comes first"),
    (["abcd", "bc"], ["abcd"], "a", True, "the same in one piece"),
    (["c", "bc"], ["abc"], "a", True, "of those that end together the longest"),
    (["", "x"], ["abc"], "abc", False, "an empty word is none"),
    ([], ["abc"], "abc", False, "no words"),
]


@pytest.mark.parametrize(("words", "pieces", "sent", "stopped", "reason"), STOPS, ids=[row[4] for row in STOPS])
def test_stop_words(words: list[str], pieces: list[str], sent: str, stopped: bool, reason: str) -> None:
    stop = StopText(words)
    out, found = "", False
    for piece in pieces:
        text, found = stop.push(piece)
        out += text
        if found:
            break
    assert (out + ("" if found else stop.flush()), found) == (sent, stopped), reason


def stream(words: list[str]) -> TextStream:
    """A stream over one-letter tokens: token id is the code point."""
    return TextStream(Detokenizer(lambda ids: "".join(map(chr, ids)), []), StopText(words))


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_draft_characters_lead_the_piece() -> None:
    step = stream([]).push(ids("abc"), accepted=2, last=False)
    assert (step.pieces, step.used, step.stopped) == ([Piece("abc", 2)], 3, False)


def test_held_text_keeps_its_author() -> None:
    text = stream(["cdX"])
    assert text.push(ids("abc"), accepted=2, last=False).pieces == [Piece("ab", 2)]
    # "c" was the target's: it cannot stand in one piece before the draft's "de"
    assert text.push(ids("def"), accepted=2, last=False).pieces == [Piece("c", 0), Piece("def", 2)]


def test_stop_word_drops_tokens_after_it() -> None:
    step = stream(["bc"]).push(ids("abcde"), accepted=4, last=False)
    assert (step.pieces, step.used, step.stopped) == ([Piece("a", 1)], 3, True)


def test_last_step_sends_what_was_held() -> None:
    text = stream(["STOP"])
    assert text.push(ids("aST"), accepted=0, last=False).pieces == [Piece("a")]
    assert text.push([], accepted=0, last=True).pieces == [Piece("ST")]


def test_character_belongs_to_the_token_that_completes_it(tmp_path: Path) -> None:
    made = byte_level(258)
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    tokens = tokenizer.encode("a🗼b")
    text = TextStream(Detokenizer(tokenizer.decode, []), StopText([]))
    # the draft wrote "a" and three of the four bytes of the tower, the target the fourth
    assert text.push(tokens[:5], accepted=4, last=False).pieces == [Piece("a🗼", 1)]
