"""Chat templates as transformers renders them, and what models' folders hold."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.serving.openai import LLAMA_LIKE
from tandem_serving.checkpoint import CheckpointError
from tandem_serving.openai import chat_template
from tandem_serving.openai.chat_template import ChatTemplate
from tandem_serving.openai.errors import ApiError

HELLO = [{"role": "user", "content": " Hello "}]
RENDERED: list[tuple[str, str, str]] = [
    # template, text, why
    (LLAMA_LIKE, "<s>[user]\nHello</s>\n[assistant]\n", "special tokens by name, the opening of the answer"),
    ("{% for m in messages %}\n    {{ m.content | trim }}\n{% endfor %}", "    Hello\n", "blocks leave no lines"),
    (
        "{{ messages | tojson }}",
        '[{"role": "user", "content": " Hello "}]',
        "no HTML escapes",
    ),
    ("{{ '<ü>' | tojson }}", '"<ü>"', "likewise"),
    ("{{ {'b': 1, 'a': [2]} | tojson(indent=1) }}", '{\n "b": 1,\n "a": [\n  2\n ]\n}', "arguments of tojson"),
    ("{{ strftime_now('%d %b %Y') }}", "26 Nov 2026", "today"),
    ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01", "break and continue"),
    ("a{% generation %}b{{ messages[0].role }}{% endgeneration %}c", "abuserc", "marks of training"),
    ("{% if tools is defined and tools %}x{% endif %}{{ enable_thinking }}", "False", "variables of the request"),
]
REFUSED: list[tuple[str, str]] = [
    ("{{ raise_exception('roles must alternate') }}", "refuses the messages: roles must alternate"),
    ("{{ messages.append(1) }}", "cannot take"),
    ("{{ ''.__class__.__mro__ }}", "cannot take"),
    ("{{ messages[0].content + 1 }}", "cannot take"),
    ("{{ messages[7].content.strip() }}", "cannot take"),
    ("{{ 1 // 0 }}", "cannot take"),
    ("{% macro deeper() %}{{ deeper() }}{% endmacro %}{{ deeper() }}", "nested so deeply"),
]


def render(template: str) -> str:
    made = ChatTemplate(
        template, {"bos_token": "<s>", "eos_token": "</s>"}, lambda: datetime(2026, 11, 26, tzinfo=UTC)
    )
    return made.render(HELLO, {"enable_thinking": False})


@pytest.mark.parametrize(("template", "text", "reason"), RENDERED, ids=[row[-1] for row in RENDERED])
def test_templates_of_models(template: str, text: str, reason: str) -> None:
    assert render(template) == text, reason


@pytest.mark.parametrize(("template", "message"), REFUSED)
def test_what_a_template_refuses_or_may_not_do(template: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        render(template)
    assert (refused.value.status, refused.value.param) == (400, "messages")


def folder(path: Path, config: dict[str, Any] | None, **files: str) -> Path:
    if config is not None:
        (path / "tokenizer_config.json").write_text(json.dumps(config))
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


NAMED = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "{{ bos_token }}default"}]
FOLDERS: list[tuple[dict[str, Any] | None, dict[str, str], str]] = [
    # tokenizer_config.json, further files, what is rendered
    ({"chat_template": "{{ bos_token }}!", "bos_token": "<s>"}, {}, "<s>!"),
    ({"chat_template": "{{ bos_token }}!", "bos_token": {"content": "<b>", "lstrip": False}}, {}, "<b>!"),
    ({"chat_template": NAMED, "bos_token": None}, {"special_tokens_map__json": '{"bos_token": "<m>"}'}, "default"),
    ({"chat_template": NAMED}, {"special_tokens_map__json": '{"bos_token": "<m>"}'}, "<m>default"),
    ({"chat_template": "old"}, {"chat_template__jinja": "new"}, "new"),
    (None, {"chat_template__jinja": "alone"}, "alone"),
]


@pytest.mark.parametrize(("config", "files", "text"), FOLDERS, ids=[row[-1] for row in FOLDERS])
def test_where_a_template_is(tmp_path: Path, config: dict[str, Any] | None, files: dict[str, str], text: str) -> None:
    assert chat_template.read(folder(tmp_path, config, **files)).render(HELLO) == text


def test_with_tools_the_template_for_them_is_used(tmp_path: Path) -> None:
    named = folder(tmp_path, {"chat_template": NAMED})
    assert chat_template.read(named, "tool_use").render(HELLO) == "tools"
    (tmp_path / "chat_template.jinja").write_text("{{ tools | length }} of all")
    assert chat_template.read(named, "tool_use").render(HELLO, tools=[{}]) == "1 of all"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates/tool_use.jinja").write_text("tools of its own")
    assert chat_template.read(named, "tool_use").render(HELLO) == "tools of its own"
    assert chat_template.read(named).render(HELLO, {"tools": [1, 2]}) == "2 of all"


@pytest.mark.parametrize("config", [None, {}, {"chat_template": [{"name": "rag", "template": "x"}]}])
def test_a_model_without_one(tmp_path: Path, config: dict[str, Any] | None) -> None:
    with pytest.raises(CheckpointError, match="no chat template"):
        chat_template.read(folder(tmp_path, config))


def test_a_malformed_one_is_the_model_s_fault(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="malformed"):
        chat_template.read(folder(tmp_path, {"chat_template": "{% if %}"}))


def test_a_template_does_not_multiply_what_a_client_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MOST_CHARACTERS", 10_000)
    nested: Any = 0
    for _ in range(10):
        nested = [nested, nested]
    for source in ("{% for _ in range(99) %}{{ a }}{% endfor %}", "{{ b | tojson(indent=4) }}"):
        with pytest.raises(ApiError, match="more than") as refused:
            ChatTemplate(source, {}).render(HELLO, {"a": "x" * 1000, "b": nested})
        assert refused.value.status == 413


def test_a_template_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "RENDER_SECONDS", -1)
    with pytest.raises(ApiError, match="took more than"):
        ChatTemplate("{% for _ in range(99) %}x{{ _ }}{% endfor %}", {}).render(HELLO)
