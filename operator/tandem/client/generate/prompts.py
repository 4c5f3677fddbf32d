"""Prompts from the command line, a file or standard input."""

import gzip
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from tandem.client.generate.errors import PromptError

STDIN = Path("-")
FIELDS = ("prompt", "text", "text_input", "turns")
"""Where a line has its prompt: HumanEval's, GenAI-Perf's (`--input-file`), and EAGLE's and MT-bench's questions."""
JSONL = (".jsonl", ".jsonl.gz")


def read_prompts(texts: Sequence[str], file: Path | None) -> list[str]:
    """All prompts: `texts`, then those of `file`.

    A `.jsonl` file, which may be compressed (`.jsonl.gz`), has one JSON object a line with one of `FIELDS`; any other
    file, and standard input (`-`), is one prompt as it is, white space included.

    Raises:
        PromptError: the file cannot be read, or a prompt is no text that UTF-8 can hold.
    """
    prompts = [*texts, *(_read(file) if file else [])]
    for number, prompt in enumerate(prompts, 1):
        try:
            prompt.encode()
        except UnicodeEncodeError as error:  # half of a surrogate pair in JSON, or bytes of the command line
            raise PromptError(f"prompt {number} is no Unicode text: {error.reason} at {error.start}") from error
    return prompts


def _read(file: Path) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
        text = (gzip.decompress(data) if file.name.endswith(".gz") else data).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise PromptError(f"cannot read the prompts: {error}") from error
    return parse_jsonl(text, str(file)) if file.name.endswith(JSONL) else [text]


def parse_jsonl(text: str, name: str) -> list[str]:
    """The prompt of every line; empty lines are left out, other fields ignored.

    Of several turns the first is taken: the others need the answers to those before.

    Raises:
        PromptError: a line is something else, or all are empty.
    """
    prompts = []
    for number, line in enumerate(text.split("\n"), 1):  # splitlines cuts at U+2028, too, which JSON may hold
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise PromptError(f"{name}, line {number}: not JSON: {error}") from error
        prompt = _prompt(record)
        if prompt is None:
            raise PromptError(f'{name}, line {number}: write an object like {{"prompt": "text"}}')
        prompts.append(prompt)
    if not prompts:
        raise PromptError(f"{name} has no prompts: write one JSON object with the field prompt a line")
    return prompts


def _prompt(record: object) -> str | None:
    """None where the line has none."""
    if not isinstance(record, dict):
        return None
    value = next((record[field] for field in FIELDS if field in record), None)
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else None
