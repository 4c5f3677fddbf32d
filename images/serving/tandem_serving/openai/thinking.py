"""Where a model's thought ends and its answer begins, in the text as it comes. Pure.

A thought stands between two markers of the model's family, before the answer. Some chat templates (DeepSeek-R1,
Qwen 3 Thinking) write the first marker into the prompt: then the text begins inside the thought.
"""

from __future__ import annotations

from dataclasses import dataclass

from tandem_serving.requests.text import StopText


@dataclass(frozen=True)
class Markers:
    """What stands before a thought, and after it."""

    begin: str
    end: str

    def open_in(self, prompt: str) -> bool:
        """Whether the prompt ends with the beginning of a thought."""
        return prompt.rstrip().endswith(self.begin)


class ThoughtReader:
    """Finds the thought in one choice's text. `inside`: the text begins there.

    A thought begins at the text's beginning, or behind another thought, but for white space. All that follows is the
    answer, in which markers are text.
    """

    def __init__(self, markers: Markers, inside: bool) -> None:
        self._markers = markers
        self._end = self._search() if inside else None
        self._answers = False
        self._rest = ""  # white space, and what could become a marker

    def push(self, text: str, over: bool) -> tuple[str, str]:
        """What is new of the thought, with its markers, and of the answer; `over`: no more comes."""
        if self._answers:
            return "", text
        self._rest += text
        thought = ""
        while True:
            if self._end:
                part, ended = self._end.push(self._rest)
                thought, self._rest = thought + part, self._rest[len(part) :]
                if not ended:
                    return thought, ""
                self._end = None
            begun, start = self._begun(self._rest.lstrip(), over)
            if not begun:
                return thought, ""
            if not start:
                self._answers, answer = True, self._rest
                return thought, answer
            length = len(self._rest) - len(self._rest.lstrip()) + len(self._markers.begin)
            thought, self._rest = thought + self._rest[:length], self._rest[length:]
            self._end = self._search()

    def _begun(self, text: str, over: bool) -> tuple[bool, bool]:
        """Whether it is known what begins, and whether it is a thought."""
        begin = self._markers.begin
        return over or not begin.startswith(text) or text == begin, text.startswith(begin)

    def _search(self) -> StopText:
        return StopText([self._markers.end], keep=True)
