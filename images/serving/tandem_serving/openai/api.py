"""Requests of OpenAI's API, checked: what is not known, or cannot be served, is refused by its name (see `fields`).

https://platform.openai.com/docs/api-reference/chat/create, .../completions/create
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tandem_serving.openai import fields, json_text
from tandem_serving.openai.errors import ApiError, unsupported

MOST_CHOICES = 128
MOST_SEQUENCES = 1024
"""Of a request: as many as wait in the queue."""
MOST_STOPS = 64
MOST_STOP_CHARACTERS = 1024
MOST_MESSAGES = 2048
"""OpenAI's limit."""
MOST_TOOLS = 128
TEXTS = {"messages", "tools", "prompt"}
FIRST_FAULT = Field(fail_fast=True)
"""Of a list: else each of its items has errors, which take a hundred times the body's memory."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """OpenAI takes null for a parameter that is not sent."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None}

    @model_serializer(mode="wrap")
    def _declared(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What changes nothing does not reach the chat template."""
        return {name: value for name, value in dump(self).items() if name in type(self).model_fields}


INT32 = (1 << 31) - 1
Count = Annotated[int, Field(ge=0, le=INT32)]
Positive = Annotated[int, Field(ge=1, le=INT32)]
StopWord = Annotated[str, Field(max_length=MOST_STOP_CHARACTERS)]


class StreamOptions(_Strict):
    """`include_usage`: a last chunk with the tokens of the whole request."""

    include_usage: bool = False


class JsonSchema(_Strict):
    """`response_format.json_schema`."""

    name: str = ""
    json_schema: Annotated[dict[str, Any], Field(alias="schema")]


class ResponseFormat(_Strict):
    """What the text must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    own_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    """With `json_object`, as llama.cpp, Together and Fireworks have it."""

    @property
    def schema_of_text(self) -> dict[str, Any] | None:
        """What the text must follow; None: any JSON, or with type text nothing. Raises ApiError: it is not where
        the type has it."""
        if self.own_schema is not None and self.type != "json_object":
            message = "response_format.schema is for type json_object: send type json_schema, and the schema in it"
            raise ApiError(400, message, "response_format.schema", "invalid_value")
        if self.json_schema is None:
            if self.type == "json_schema":
                message = "response_format.json_schema is missing: send the schema in it"
                raise ApiError(400, message, "response_format", "invalid_value")
            return self.own_schema
        if self.type != "json_schema":
            message = (
                f"response_format.json_schema is for type json_schema, and the type is {self.type}: send that type"
            )
            raise ApiError(400, message, "response_format.json_schema", "invalid_value")
        return self.json_schema.json_schema


class Parameters(_Strict):
    """What chat and completions have in common. Of `top_k` and below OpenAI has none: the names are vLLM's and
    trtllm-serve's, `num_draft_tokens` is Tandem's."""

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] = 1
    max_tokens: Positive | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: int | None = None
    stop: StopWord | Annotated[list[StopWord], Field(max_length=MOST_STOPS), FIRST_FAULT] | None = None
    response_format: ResponseFormat | None = None
    top_k: Count | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    num_draft_tokens: Count | None = None

    @property
    def guided_by(self) -> str:
        """The parameter for which the engine would need guided decoding."""
        return "response_format"

    @property
    def is_guided(self) -> bool:
        """Whether guided decoding makes the text."""
        return self.response_format is not None and self.response_format.type != "text"

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop words."""
        words = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(word for word in words if word)

    @property
    def without_text(self) -> Self:
        """What an answer needs of it, which may take long: its texts may be large."""
        return self.model_copy(update=dict.fromkeys(TEXTS & type(self).model_fields.keys()))

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


class TextPart(_Strict):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class CalledFunction(_Strict):
    """What the assistant called. `arguments`: JSON; empty: none."""

    name: str
    arguments: str = ""


class ToolCall(_Strict):
    """A call in an assistant's message; the message of role tool that answers it has its id as `tool_call_id`."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(_Strict):
    """A message. `reasoning_content`, `reasoning`: an answer's thought, for templates that know it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], FIRST_FAULT] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], FIRST_FAULT] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class Function(_Strict):
    """A tool, as the chat template gets it. `parameters`: a JSON schema."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Strict):
    """What the model may call."""

    type: Literal["function"]
    function: Function


class ToolName(_Strict):
    """Of one of `tools`."""

    name: str


class NamedTool(_Strict):
    """`tool_choice`: the one that must be called."""

    type: Literal["function"]
    function: ToolName


class ChatRequest(Parameters):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES), FIRST_FAULT]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Annotated[list[Tool], Field(max_length=MOST_TOOLS), FIRST_FAULT] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None

    @property
    def guided_by(self) -> str:
        """See Parameters."""
        return "response_format" if self.tool_choice in (None, "none", "auto") else "tool_choice"

    @property
    def most_tokens(self) -> int | None:
        """None: as many as the model takes."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def with_log_probs(self) -> bool:
        """Whether the tokens' log probabilities are wanted."""
        return bool(self.logprobs)

    @property
    def with_prompt_log_probs(self) -> bool:
        """A chat does not repeat its prompt."""
        return False


def _prompt(given: Any) -> Any:
    """Checked here: pydantic tries each type for each item, and copies what it takes."""
    if isinstance(given, str) or _is_tokens(given):
        return given
    if isinstance(given, list) and (all(isinstance(each, str) for each in given) or all(map(_is_tokens, given))):
        return given
    kinds = "a text, a list of texts, a list of tokens (integers from 0), or a list of such lists"
    raise PydanticCustomError("prompt", f"send {kinds}")


def _is_tokens(given: Any) -> bool:
    """Whether it is a list of them, or empty."""
    if not isinstance(given, list) or set(map(type, given)) - {int}:
        return False
    return min(given, default=0) >= 0 and max(given, default=0) <= INT32


Prompt = Annotated[Any, BeforeValidator(_prompt)]


class CompletionRequest(Parameters):
    """POST /v1/completions."""

    prompt: Prompt
    echo: bool | None = None
    logprobs: Annotated[int, Field(ge=0)] | None = None

    @property
    def most_tokens(self) -> int:
        """OpenAI's default is 16."""
        return self.max_tokens or 16

    @property
    def with_log_probs(self) -> bool:
        """Whether the tokens' log probabilities are wanted."""
        return self.logprobs is not None

    @property
    def with_prompt_log_probs(self) -> bool:
        """Whether those of the prompt's tokens are wanted, too."""
        return bool(self.echo) and self.with_log_probs

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """Each of them. Raises ApiError: there is none, or one is empty."""
        prompts: Any = self.prompt if isinstance(self.prompt, list) else [self.prompt]
        if prompts and isinstance(prompts[0], int):
            prompts = [prompts]
        if not prompts or not all(prompts):
            raise ApiError(400, "prompt is empty: send at least one character or token", "prompt")
        if len(prompts) * self.n > MOST_SEQUENCES:
            raise ApiError(400, f"prompt and n ask for more than {MOST_SEQUENCES} sequences: send fewer", "prompt")
        return prompts  # type: ignore[no-any-return]


RequestT = TypeVar("RequestT", bound=Parameters)


def parse(kind: type[RequestT], body: bytes, most_values: int = json_text.MOST_VALUES) -> RequestT:
    """A request's JSON. Raises ApiError: for the first thing that is wrong, with its name."""
    given = json_text.read_body(body, most_values)
    try:
        request = kind.model_validate(given)
    except ValidationError as error:
        raise _invalid(error) from None
    fields.check(request)
    if request.stream_options and not request.stream:
        raise ApiError(400, "stream_options is for streams: send stream true, or leave it out", "stream_options")
    if isinstance(request, CompletionRequest) and request.logprobs:
        raise unsupported("logprobs", "Tandem's models in Triton give those of the chosen tokens only; send 0")
    return request


def _invalid(error: ValidationError) -> ApiError:
    """The first fault; of the types that a value may have, that which fits furthest."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    of_first = [fault for fault in faults if fault["loc"][:1] == faults[0]["loc"][:1]]
    fault = max(of_first, key=lambda fault: len(fault["loc"]))
    place = ""
    for part in fault["loc"]:
        if isinstance(part, int):
            place += f"[{part}]"
        elif part.isidentifier() and part not in ("str", "int"):  # else a type's name
            place += f".{part}" if place else part
    return ApiError(400, f"{place or 'the body'}: {fault['msg']}", place or None, "invalid_value")
