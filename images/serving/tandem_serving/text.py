"""Text of a sequence, piece by piece: incremental decoding, stop words, and who wrote which characters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

# What decoders write for bytes that are no complete character (yet).
REPLACEMENT = "\ufffd"
# Tokens of the prompt that are decoded with the first new ones: decoders drop a leading space.
_CONTEXT_TOKENS = 6
# A character has at most four bytes, so it spans at most four tokens.
_CHARACTER_TOKENS = 4
# The window of tokens decoded at each step is cut back to a part when it gets longer than this.
_WINDOW_TOKENS = 8

Decode = Callable[[list[int]], str]


def whole_characters(decode: Decode, prompt: list[int]) -> str:
    """A prompt's text without a character that is incomplete at its end: that comes with the new text."""
    texts = [decode(prompt[: len(prompt) - cut]) for cut in range(min(len(prompt) + 1, _CHARACTER_TOKENS))]
    return next((text for text in texts if not text.endswith(REPLACEMENT)), texts[0])


class Detokenizer:
    """Turns tokens into text deltas that never end inside a character.

    Decodes a short window: what comes before it cannot change the text after it, as the window is only
    cut where the text before was complete. Concatenated deltas are the text of the whole sequence.
    """

    def __init__(self, decode: Decode, prompt: list[int], text: str = "") -> None:
        """`text` is the prompt's; a U+FFFD at its end is its own, and no incomplete character of its tokens."""
        self._decode = decode
        start, end = self._context(prompt)
        self._window = prompt[start:]
        known = self._decode(self._window)
        known = known if text.endswith(REPLACEMENT) else known.rstrip(REPLACEMENT)
        self._sent = max(len(self._decode(prompt[start:end])), len(known))
        self._safe = end - start

    def push(self, tokens: list[int]) -> str:
        """The text that `tokens` complete; "" while a character is incomplete."""
        self._window += tokens
        text = self._decode(self._window)
        complete = text.rstrip(REPLACEMENT)
        delta = complete[self._sent :]
        self._sent = max(self._sent, len(complete))
        if len(complete) == len(text) and len(self._window) > _WINDOW_TOKENS:
            self._cut()
        return delta

    def flush(self) -> str:
        """What is left at the end: incomplete characters as U+FFFD."""
        text = self._decode(self._window)
        delta = text[self._sent :]
        self._sent = max(self._sent, len(text))
        return delta

    def _context(self, prompt: list[int]) -> tuple[int, int]:
        """Where in the prompt the window starts and its complete text ends: both between characters."""
        length = len(prompt)
        for end in range(length, max(-1, length - _CHARACTER_TOKENS), -1):
            first = max(0, end - _CONTEXT_TOKENS)
            for start in range(first, max(-1, first - _CHARACTER_TOKENS), -1):
                text = self._decode(prompt[start:end])
                if not text.startswith(REPLACEMENT) and not text.endswith(REPLACEMENT):
                    return start, end
        return length, length

    def _cut(self) -> None:
        text = self._decode(self._window[self._safe :])
        if not text:
            return  # special tokens alone: behind them a decoder would drop a leading space
        self._window = self._window[self._safe :]
        self._safe = len(self._window)
        self._sent = len(text)


class StopText:
    """Finds stop words in a stream of text and holds back what could become one; `found` is what ended it.

    The word whose end comes first counts, the longest of those that end together; the text is cut
    before it.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = sorted({word for word in words if word}, key=len, reverse=True)
        self.found = ""
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Return (text that may be sent, whether a stop word was found)."""
        if not self.words:
            return text, False
        text = self._held + text
        found = [(text.find(word) + len(word), -len(word)) for word in self.words if word in text]
        if found:
            end, length = min(found)
            self._held = ""
            self.found = text[end + length : end]
            return text[: end + length], True
        hold = max(_overlap(text, word) for word in self.words)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold], False

    def flush(self) -> str:
        """What was held back and never became a stop word."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """Length of the longest end of `text` with which `word` begins (shorter than `word`)."""
    for length in range(min(len(word) - 1, len(text)), 0, -1):
        if text.endswith(word[:length]):
            return length
    return 0


class Piece(NamedTuple):
    """Text to send; its first `draft_length` characters come from accepted draft tokens."""

    text: str
    draft_length: int = 0


class TextStep(NamedTuple):
    """What a step's tokens gave: pieces to send in order, tokens used, whether a stop word ended it."""

    pieces: list[Piece]
    used: int
    stopped: bool


@dataclass
class TextStream:
    """A sequence's text: tokens in, pieces out.

    A character belongs to the token that completes it. Usually a step gives one piece; text that was
    held back may need one of its own, as a piece is draft text followed by the target's. `stop_ids`: stop words that
    are special tokens, which have no text, by their ids.
    """

    detokenizer: Detokenizer
    stop: StopText
    stop_ids: Mapping[int, str] = field(default_factory=dict)
    _pending: deque[tuple[int, bool]] = field(default_factory=deque)

    def push(self, ids: list[int], accepted: int, last: bool) -> TextStep:
        """Add a step's tokens, the first `accepted` of them drafted; `last` flushes what is held."""
        if not self.stop.words:
            return self._unstopped(ids, accepted, last)
        runs: list[tuple[str, bool]] = []
        for end, token in enumerate(ids, 1):
            # One by one: a stop word may end at any.
            if token in self.stop_ids:
                if not self._flush(runs):
                    self.stop.found = self.stop_ids[token]
                return TextStep(_pieces(runs), end, stopped=True)
            if self._add(self.detokenizer.push([token]), end <= accepted, runs):
                return TextStep(_pieces(runs), end, stopped=True)
        stopped = last and self._flush(runs)
        return TextStep(_pieces(runs), len(ids), stopped)

    def _flush(self, runs: list[tuple[str, bool]]) -> bool:
        """What is held; whether a stop word was found in it."""
        stopped = self._add(self.detokenizer.flush(), False, runs)
        if not stopped:
            self._emit(self.stop.flush(), runs)
        return stopped

    def _unstopped(self, ids: list[int], accepted: int, last: bool) -> TextStep:
        """The step without stop words: nothing is held back, so its text is one piece."""
        drafted = self.detokenizer.push(ids[:accepted]) if accepted else ""
        rest = self.detokenizer.push(ids[accepted:]) if accepted < len(ids) else ""
        if last:
            rest += self.detokenizer.flush()
        return TextStep([Piece(drafted + rest, len(drafted))], len(ids), stopped=False)

    def _add(self, text: str, drafted: bool, runs: list[tuple[str, bool]]) -> bool:
        if text:
            self._pending.append((len(text), drafted))
        out, stopped = self.stop.push(text)
        self._emit(out, runs)
        return stopped

    def _emit(self, text: str, runs: list[tuple[str, bool]]) -> None:
        while text:
            length, drafted = self._pending.popleft()
            if length > len(text):
                self._pending.appendleft((length - len(text), drafted))
            runs.append((text[:length], drafted))
            text = text[length:]


def _pieces(runs: list[tuple[str, bool]]) -> list[Piece]:
    """Join runs into pieces of the form: draft text, then the target's."""
    pieces: list[Piece] = []
    for text, drafted in runs:
        if not pieces or (drafted and pieces[-1].draft_length < len(pieces[-1].text)):
            pieces.append(Piece(""))
        last = pieces[-1]
        pieces[-1] = Piece(last.text + text, last.draft_length + (len(text) if drafted else 0))
    return pieces or [Piece("")]
