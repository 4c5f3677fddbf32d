"""Text of a sequence as its tokens come: incremental decoding, stop words, and who wrote which characters."""

from __future__ import annotations

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

    def preview(self, tokens: list[int], others: list[int]) -> str:
        """The text that `others` would add behind `tokens`, none of them pushed; incomplete characters as U+FFFD."""
        if not others:
            return ""
        window = self._window + tokens
        known = max(self._sent, len(self._decode(window).rstrip(REPLACEMENT)))
        return self._decode(window + others)[known:]

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
    """Finds stop words in a stream of text; `found` is what ended it.

    The word whose end comes first counts, the longest of those that end together. With `keep` the text ends with the
    word, and nothing is held back; without, it ends before the word, and what could become one waits.
    """

    def __init__(self, words: Iterable[str], keep: bool = False) -> None:
        self.words = sorted({word for word in words if word}, key=len, reverse=True)
        self.found = ""
        self._keep = keep
        self._begun = ""  # of a word, at the end of the text; sent already where words are kept

    def push(self, text: str) -> tuple[str, bool]:
        """Return (text that may be sent, whether a stop word was found)."""
        if not self.words:
            return text, False
        sent = len(self._begun) if self._keep else 0
        text = self._begun + text
        found = [(text.find(word) + len(word), -len(word)) for word in self.words if word in text]
        if found:
            end, length = min(found)
            self._begun = ""
            self.found = text[end + length : end]
            return text[sent : end if self._keep else end + length], True
        begun = len(text) - max(_overlap(text, word) for word in self.words)
        self._begun = text[begun:]
        return text[sent : len(text) if self._keep else begun], False

    def end(self, text: str, word: str) -> str:
        """The last text that may be sent, where a word was found by its tokens."""
        if self._keep:
            self.found = word
            return text
        out, found = self.push(text)
        if not found:
            self.found = word
        return out + self.flush()

    def flush(self) -> str:
        """What was held back and never became a stop word."""
        begun, self._begun = self._begun, ""
        return "" if self._keep else begun


def _overlap(text: str, word: str) -> int:
    """Length of the longest end of `text` with which `word` begins (shorter than `word`)."""
    at = text.find(word[0], max(0, len(text) - len(word) + 1))
    while at >= 0 and not word.startswith(text[at:]):
        at = text.find(word[0], at + 1)
    return len(text) - at if at >= 0 else 0


class StopTokens:
    """Finds stop words by their tokens, as engines do: in the whole sequence, so that one may begin in the prompt."""

    def __init__(self, words: Mapping[tuple[int, ...], str], prompt: list[int] | None = None) -> None:
        self._words = words
        self._lengths = {len(ids) for ids in words}
        self._longest = max(self._lengths, default=0)
        self._end = (prompt or [])[-self._longest :] if self._longest else []

    def push(self, token: int) -> str:
        """The longest word whose last token this is; "": none."""
        if not self._longest:
            return ""
        self._end = [*self._end, token][-self._longest :]
        ends = (tuple(self._end[-length:]) for length in sorted(self._lengths, reverse=True))
        return next((self._words[ids] for ids in ends if ids in self._words), "")


class TextDelta(NamedTuple):
    """What a step's tokens gave: text to send, tokens used, whether a stop word ended it.

    The first `draft_length` characters come from accepted draft tokens, where no text is held back.
    """

    text: str
    draft_length: int
    used: int
    stopped: bool


@dataclass
class TextStream:
    """A sequence's text: tokens in, text out. A character belongs to the token that completes it.

    A stop word ends it where its letters come, whatever tokens they are of, or its tokens, by `stop_tokens`.
    """

    detokenizer: Detokenizer
    stop: StopText
    stop_tokens: StopTokens = field(default_factory=lambda: StopTokens({}))

    def push(self, ids: list[int], accepted: int, last: bool) -> TextDelta:
        """Add a step's tokens, the first `accepted` of them drafted; `last` flushes what is held."""
        if not self.stop.words:
            return self._unstopped(ids, accepted, last)
        text, draft_length = "", 0
        for end, token in enumerate(ids, 1):
            # One by one: a stop word may end at any.
            new, stopped = self._next(token)
            text += new
            draft_length = len(text) if end <= accepted else draft_length
            if stopped:
                return TextDelta(text, draft_length, end, stopped=True)
        rest, stopped = self._rest() if last else ("", False)
        return TextDelta(text + rest, draft_length, len(ids), stopped)

    def _next(self, token: int) -> tuple[str, bool]:
        """A token's text, and whether a stop word was found."""
        text, word = self.detokenizer.push([token]), self.stop_tokens.push(token)
        return (self.stop.end(text + self.detokenizer.flush(), word), True) if word else self.stop.push(text)

    def _rest(self) -> tuple[str, bool]:
        """What is held, and whether a stop word was found in it."""
        text, stopped = self.stop.push(self.detokenizer.flush())
        return text + self.stop.flush(), stopped

    def _unstopped(self, ids: list[int], accepted: int, last: bool) -> TextDelta:
        """The step without stop words, which need not be taken token by token."""
        drafted = self.detokenizer.push(ids[:accepted]) if accepted else ""
        rest = self.detokenizer.push(ids[accepted:]) if accepted < len(ids) else ""
        if last:
            rest += self.detokenizer.flush()
        return TextDelta(drafted + rest, len(drafted), len(ids), stopped=False)
