"""What LiteLLM gets of an OpenAI endpoint, as JSON: `with_litellm.py URL MODEL PROMPT TOKENS`.

Runs in the environment of clients-requirements.txt.
"""

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the internet for prices, as it is imported
import litellm  # type: ignore[import-not-found]

litellm.suppress_debug_info = True  # which goes to standard output
URL, MODEL, PROMPT, TOKENS = sys.argv[1:]
OF_MODEL: dict[str, Any] = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none", "temperature": 0}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "Add", "description": "Add two numbers.", "parameters": PARAMETERS}}
STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def chat(prompt: str = PROMPT, **more: Any) -> Any:
    """A chat; a stream is added up as LiteLLM does it."""
    messages = [{"role": "user", "content": prompt}]
    given = {"messages": messages, "max_tokens": int(TOKENS), **OF_MODEL, **more}
    answer = litellm.completion(**given)
    return litellm.stream_chunk_builder(list(answer)) if more.get("stream") else answer


def usage(answer: Any) -> list[int]:
    """As LiteLLM's users read it."""
    return [answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens]


def refused(**more: Any) -> list[str]:
    """The error's class, and its message."""
    try:
        chat(**more)
    except Exception as error:  # noqa: BLE001 - which one is what is asked
        return [type(error).__name__, str(error)]
    return ["none", ""]


whole, streamed = chat(), chat(**STREAM)
texts = [each.choices[0].message.content for each in (whole, streamed)]
texts.append(litellm.text_completion(prompt=PROMPT, max_tokens=int(TOKENS), **OF_MODEL).choices[0].text)
tools: dict[str, Any] = {"tools": [TOOL], "max_tokens": 64, "stop": ["\n"]}
asked, streamed_call = (chat(**tools, **more).choices[0].message for more in ({}, STREAM))
found = [call for message in (asked, streamed_call) for call in message.tool_calls]
messages = [{"role": "user", "content": PROMPT}, asked.model_dump()]
messages += [{"role": "tool", "tool_call_id": call.id, "content": "43"} for call in asked.tool_calls]
print(
    json.dumps(
        {
            "texts": texts,
            "usage": [usage(whole), usage(streamed)],
            "details": whole.usage.completion_tokens_details.model_dump(),
            "calls": [[call.function.name, json.loads(call.function.arguments)] for call in found],
            "answer": chat(messages=messages, tools=[TOOL]).choices[0].message.content,
            "refused": refused(response_format={"type": "json_object"}),
            "too long": refused(prompt=PROMPT * 1000),
        }
    )
)
