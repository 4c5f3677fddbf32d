"""Prompts from options, files and standard input."""

import gzip
import io
import json
from pathlib import Path

import pytest

from tandem.client.generate.errors import PromptError
from tandem.client.generate.prompts import STDIN, parse_jsonl, read_prompts

REPOSITORY = Path(__file__).parents[3]


def test_options_come_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "c", "id": 1}\n\n{"prompt": "d\\n"}\n', encoding="utf-8")
    assert read_prompts(["a", "b"], file) == ["a", "b", "c", "d\n"]


def test_a_text_file_is_one_prompt_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("def add(a, b):\n    ", encoding="utf-8")
    assert read_prompts([], file) == ["def add(a, b):\n    "]


def test_standard_input_is_one_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("x = é\n".encode()), "ascii"))
    assert read_prompts([], STDIN) == ["x = é\n"]


@pytest.mark.parametrize(
    ("line", "prompt", "reason"),
    [
        (
            {"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "    pass\n"},
            "def f():\n",
            "HumanEval",
        ),
        ({"text": "a"}, "a", "GenAI-Perf's --input-file"),
        ({"text": ["a", "b"]}, "a", "GenAI-Perf's texts of one request"),
        ({"text_input": "a"}, "a", "the tensor of Triton's guides"),
        ({"question_id": 81, "category": "writing", "turns": ["a", "and b?"]}, "a", "EAGLE's question.jsonl"),
        ({"text": "no", "prompt": "yes"}, "yes", "the field that says so"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_of_other_benchmarks(line: dict[str, object], prompt: str, reason: str) -> None:
    assert parse_jsonl(json.dumps(line), "p.jsonl") == [prompt], reason


def test_a_compressed_file(tmp_path: Path) -> None:
    file = tmp_path / "HumanEval.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"prompt": "a"}\n{"prompt": "b"}\n'))
    assert read_prompts([], file) == ["a", "b"]
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(PromptError, match="cannot read the prompts"):
        read_prompts([], file)
    file.write_bytes(b"no gzip")
    with pytest.raises(PromptError, match="cannot read the prompts"):
        read_prompts([], file)


def test_a_line_ends_at_a_newline_alone() -> None:
    assert parse_jsonl('{"prompt": "a\u2028b\x85c"}\r\n{"prompt": "d"}', "p.jsonl") == ["a\u2028b\x85c", "d"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("p.txt", b"a\xffb", "cannot read the prompts: 'utf-8' codec can't decode byte 0xff"),
        ("p.jsonl", b'{"prompt": "a"}\n{"prompt": "b\\ud83d"}', "prompt 2 is no Unicode text"),
    ],
    ids=["not UTF-8", "half of a pair of surrogates"],
)
def test_what_is_no_text_is_said_before_anything_is_sent(name: str, data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(PromptError, match=says):
        read_prompts([], tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "p.jsonl, line 1: not JSON"),
        ('{"prompt": "a"}\n["a"]', "p.jsonl, line 2: write an object like"),
        ('{"question": "a"}', "p.jsonl, line 1: write an object like"),
        ('{"turns": []}', "p.jsonl, line 1: write an object like"),
        ('{"prompt": 1}', "p.jsonl, line 1: write an object like"),
        ("\n \n", "p.jsonl has no prompts"),
    ],
    ids=["not JSON", "a list", "no field of a prompt", "no turns", "not a string", "only empty lines"],
)
def test_bad_lines_are_named(text: str, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        parse_jsonl(text, "p.jsonl")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=r"gone\.jsonl"):
        read_prompts([], tmp_path / "gone.jsonl")


def test_the_examples_can_be_read() -> None:
    prompts = read_prompts([], REPOSITORY / "examples/prompts.jsonl")
    assert len(prompts) == len(set(prompts)) >= 6
