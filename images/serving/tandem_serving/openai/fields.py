"""Fields of requests that change nothing here, and those that are refused: by their place, each with its reason.

What is served is a field of a class of `api`. A name that stands in neither place is refused, at every level but
those of `FREE`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel

from tandem_serving.openai.errors import ApiError, unsupported


class Other(NamedTuple):
    """A field that is not served. `neutral`: values that ask for nothing, which pass where it is refused."""

    why: str
    refused: bool
    neutral: tuple[Any, ...] = ()


def _hint(why: str) -> Other:
    return Other(why, refused=False)


def _no(why: str, *neutral: Any) -> Other:
    return Other(why, refused=True, neutral=neutral)


_TEXT_ONLY = "this service takes and gives text"
_TOOLS = "tools are for /v1/chat/completions"
_FUNCTIONS = "it is OpenAI's older form of tools; send tools and tool_choice"
_PREFILL = (
    "an answer that is begun is not continued; ask /v1/completions with the conversation as a text that ends with the"
    " answer's beginning"
)
_GUIDE = "send response_format"
_CHOSEN = "Tandem's models in Triton give the log probability of the chosen token only; leave it out, or send 0"
_ANTHROPIC = "Anthropic's hint to a cache: the engine's cache needs none"
LEVELS: Mapping[str, Mapping[str, Other]] = {
    "": {
        "metadata": _hint("nothing is stored"),
        "prediction": _hint("a hint that saves time: here the draft predicts"),
        "prompt_cache_key": _hint("the engine's cache needs no hint"),
        "prompt_cache_options": _hint("the engine's cache needs no hint"),
        "prompt_cache_retention": _hint("the engine's cache needs no hint"),
        "safety_identifier": _hint("nobody looks at it"),
        "service_tier": _hint("there is one tier"),
        "store": _hint("nothing is stored"),
        "user": _hint("nobody looks at it"),
        "moderation": _hint("nothing is moderated; a `policy`, which asks for scores or blocks, is refused"),
        "audio": _no(_TEXT_ONLY),
        "modalities": _no(_TEXT_ONLY, ["text"]),
        "best_of": _no("ask for n completions and choose", 1),
        "function_call": _no(_FUNCTIONS, "none"),
        "functions": _no(_FUNCTIONS, []),
        "logit_bias": _no("Tandem's models in Triton have no input for a bias of tokens; leave it out", {}),
        "parallel_tool_calls": _no(_TOOLS, True, False),
        "prompt_logprobs": _no("ask /v1/completions, with echo true and logprobs 0"),
        "reasoning_effort": _no(
            "write it in chat_template_kwargs, by the name that the model's chat template has for it"
        ),
        "suffix": _no("the models continue a text, they fill no gap; leave it out", ""),
        "tool_choice": _no(_TOOLS, "none"),
        "tools": _no(_TOOLS, []),
        "top_logprobs": _no(_CHOSEN, 0),
        "verbosity": _no("models have no such switch; say in a message how long the answer should be", "medium"),
        "web_search_options": _no("there is no search; leave it out"),
        # Of vLLM, SGLang and trtllm-serve.
        "add_generation_prompt": _no("send it in chat_template_kwargs", True),
        "continue_final_message": _no(_PREFILL, False),
        "chat_template": _no("the template is the model's own; leave it out"),
        "guided_choice": _no(_GUIDE),
        "guided_grammar": _no(_GUIDE),
        "guided_json": _no(_GUIDE),
        "guided_regex": _no(_GUIDE),
        "structured_outputs": _no(_GUIDE),
        "include_stop_str_in_output": _no("texts end before the stop word; leave it out", False),
        "length_penalty": _no("there is no beam search; leave it out", 1),
        "skip_special_tokens": _no("special tokens never are in the text; leave it out", True),
        "stop_token_ids": _no("send the tokens' texts in stop", []),
        "use_beam_search": _no("there is no beam search; leave it out", False),
    },
    "moderation": {
        "model": _hint("nothing is moderated"),
        "policy": _no("nothing is moderated here; leave it out, and moderate prompts and answers yourself"),
    },
    "stream_options": {
        "include_obfuscation": _no("events are not padded against eavesdroppers; send false, and use TLS", False),
        "continuous_usage_stats": _no("the usage comes with the last chunk; send include_usage", False),
    },
    "response_format": {},
    "response_format.json_schema": {
        "description": _hint("the schema guides the engine; the model does not get to know it"),
        "strict": _hint("guided decoding always follows the schema"),
    },
    "messages[]": {
        "annotations": _hint("a search's citations in an answer of OpenAI's, sent back"),
        "cache_control": _hint(_ANTHROPIC),
        "parsed": _hint("what OpenAI's client made of an answer, sent back"),
        "provider_specific_fields": _hint("what LiteLLM adds to answers, sent back"),
        "audio": _no(_TEXT_ONLY),
        "function_call": _no(_FUNCTIONS),
        "refusal": _no("send the text as content", ""),
        # DeepSeek's and Mistral's name, and Moonshot's.
        "prefix": _no(_PREFILL, False),
        "partial": _no(_PREFILL, False),
    },
    "messages[].content[]": {
        "cache_control": _hint(_ANTHROPIC),
        "prompt_cache_breakpoint": _hint("the engine's cache needs no hint"),
    },
    "messages[].tool_calls[]": {"index": _hint("a call's place in the events of a stream, sent back")},
    "messages[].tool_calls[].function": {
        "parsed_arguments": _hint("what OpenAI's client made of `arguments`, sent back")
    },
    "tools[]": {"cache_control": _hint(_ANTHROPIC)},
    "tools[].function": {},
    "tool_choice": {},
    "tool_choice.function": {},
    "chat_template_kwargs": {
        "chat_template": _no("the template is the model's own; leave it out"),
        "continue_final_message": _no(_PREFILL, False),
        "messages": _no("send them as the parameter messages"),
        "tools": _no("send them as the parameter tools", []),
    },
}
"""By the path of the object that has them, with [] for a list's items; "": the request itself."""
FREE = frozenset({"chat_template_kwargs"})
"""Where any other name passes: the chat template has variables of its own."""
_LONGEST_NAME = 64
"""A longer one is not compared with others, and is cut in messages."""


Path = tuple[str | int, ...]


def check(part: BaseModel, level: str = "", path: Path = ()) -> None:
    """Raises ApiError for the first field that is not served, of a request or a part of it, with its path."""
    if part.model_extra:
        _check_names(part.model_extra.items(), _served(type(part)).values(), level, path)
    for name, value in part.__dict__.items():
        if isinstance(value, BaseModel):
            check(value, _join(level, name), (*path, name))
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            inner = f"{_join(level, name)}[]"
            for at, each in enumerate(value):
                check(each, inner, (*path, name, at))
        elif isinstance(value, dict) and _join(level, name) in LEVELS:
            _check_names(value.items(), (), _join(level, name), (*path, name))


@cache
def _served(kind: type[BaseModel]) -> Mapping[str, str]:
    """A class's fields, and their names in requests."""
    return {name: field.alias or name for name, field in kind.model_fields.items()}


def _check_names(items: Iterable[tuple[str, Any]], served: Iterable[str], level: str, path: Path) -> None:
    for name, value in items:
        other = LEVELS[level].get(name)
        if value is None or (other is None and level in FREE):
            continue
        place = _shown((*path, name[:_LONGEST_NAME]))
        if other is None:
            message = f"{place} is not known to this API: {_advice(name, served)}"
            raise ApiError(400, message, place, "unknown_parameter")
        if other.refused and value not in other.neutral:
            raise unsupported(place, other.why)
        if isinstance(value, dict) and _join(level, name) in LEVELS:
            _check_names(value.items(), (), _join(level, name), (*path, name))


def _advice(name: str, served: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(served), n=1) if len(name) <= _LONGEST_NAME else []
    return f"did you mean {close[0]}?" if close else "leave it out"


def _join(level: str, name: str) -> str:
    return f"{level}.{name}" if level else name


def _shown(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
