"""What a chat's `tools` and `tool_choice` ask for: tools in the prompt, a schema for the engine, a reader of calls.

Pure. https://platform.openai.com/docs/guides/function-calling
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tandem_serving.openai.api import ChatRequest, JsonSchema, NamedTool, ResponseFormat, Tool
from tandem_serving.openai.errors import ApiError, unsupported
from tandem_serving.openai.tool_calls import FORMATS, JSON_ARRAY, CallReader, Format, NamedCall, WrittenCalls

ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
"""The schema of a tool that declares none."""
NO_FORMAT = (
    "this service names no format in which its model writes calls: write spec.serving.openAI.toolCalls:"
    f" {', '.join(list(FORMATS)[:-1])} or {list(FORMATS)[-1]}, or send tool_choice none"
)


@dataclass(frozen=True)
class ToolUse:
    """`tools`: for the template, as they were sent; `guide`: what the text must be; `reader`: makes one for a choice,
    None: all is text."""

    tools: Sequence[Mapping[str, Any]] = ()
    guide: ResponseFormat | None = None
    reader: Callable[[], CallReader] | None = None


def tool_use(request: ChatRequest, form: Format | None) -> ToolUse:
    """What to make of a request; `form`: in which the model writes calls, None: the service names none.

    With tool_choice none the model does not get to know the tools: so it calls none. Raises ApiError.
    """
    tools, choice = request.tools or [], request.tool_choice
    if not tools and choice not in (None, "none"):
        raise ApiError(400, "tool_choice is for tools: send tools, or leave it out", "tool_choice")
    if not tools or choice == "none":
        return ToolUse()
    if request.is_guided:
        message = "response_format and tools exclude each other: a text in that format is no call; send one of them"
        raise ApiError(400, message, "response_format")
    most = 1 if request.parallel_tool_calls is False else None
    sent = [tool.model_dump(exclude_unset=True) for tool in tools]
    names = [tool.function.name for tool in tools]
    if isinstance(choice, NamedTool):
        return ToolUse(sent, _guide(_named(choice.function.name, tools)), partial(NamedCall, choice.function.name))
    if choice == "required":
        return ToolUse(sent, _guide(_array(tools, most)), partial(WrittenCalls, JSON_ARRAY, names, most))
    if form is None:
        raise unsupported("tools", NO_FORMAT)
    return ToolUse(sent, None, partial(WrittenCalls, form, names, most))


def _guide(schema: dict[str, Any]) -> ResponseFormat:
    return ResponseFormat(type="json_schema", json_schema=JsonSchema.model_validate({"schema": schema}))


def _named(name: str, tools: Sequence[Tool]) -> dict[str, Any]:
    found = next((tool for tool in tools if tool.function.name == name), None)
    if found is None:
        raise ApiError(400, f"tool_choice names {name!r}, which is none of tools: send it there", "tool_choice")
    return dict(found.function.parameters or ANY_ARGUMENTS)


def _array(tools: Sequence[Tool], most: int | None) -> dict[str, Any]:
    """Calls of any of the tools, one at least. References of a schema are from its root, where `$defs` must go."""
    calls, shared = [], dict[str, Any]()
    for tool in tools:
        parameters = dict(tool.function.parameters or ANY_ARGUMENTS)
        for name, schema in parameters.pop("$defs", {}).items():
            if shared.setdefault(name, schema) != schema:
                message = f"tools: $defs.{name} differs between two tools, give it another name in one of them"
                raise ApiError(400, message, "tools")
        properties = {"name": {"const": tool.function.name}, "parameters": parameters}
        calls.append({"type": "object", "properties": properties, "required": ["name", "parameters"]})
    bounds = {"minItems": 1, **({"maxItems": most} if most else {})}
    return {"type": "array", **bounds, "items": {"anyOf": calls}, **({"$defs": shared} if shared else {})}
