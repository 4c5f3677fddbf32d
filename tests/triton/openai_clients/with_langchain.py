"""What LangChain gets of an OpenAI endpoint, as JSON: `with_langchain.py URL MODEL PROMPT TOKENS`.

Runs in the environment of clients-requirements.txt.
"""

import json
import sys
from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI, OpenAI  # type: ignore[import-not-found]
from pydantic import BaseModel

URL, MODEL, PROMPT, TOKENS = sys.argv[1:]
OF_MODEL: dict[str, Any] = {"base_url": URL, "api_key": "none", "model": MODEL, "temperature": 0, "max_retries": 0}


class Add(BaseModel):
    """Add two numbers."""

    a: int
    b: int


def usage(message: Any) -> list[int]:
    """As LangChain's users read it."""
    return [message.usage_metadata[name] for name in ("input_tokens", "output_tokens", "total_tokens")]


def refused(call: Any, prompt: str) -> list[str]:
    """The error's class, and its message."""
    try:
        call.invoke(prompt)
    except Exception as error:  # noqa: BLE001 - which one is what is asked
        return [type(error).__name__, str(error)]
    return ["none", ""]


model = ChatOpenAI(**OF_MODEL, max_tokens=int(TOKENS), stream_usage=True)
whole, streamed = model.invoke(PROMPT), reduce(add, model.stream(PROMPT))
asked: list[Any] = [HumanMessage(PROMPT)]
calls = model.bind_tools([Add]).bind(max_tokens=64, stop=["\n"])
asked.append(calls.invoke(asked))
streamed_calls = reduce(add, calls.stream(asked[:1])).tool_calls
asked += [ToolMessage("43", tool_call_id=call["id"]) for call in asked[-1].tool_calls]
print(
    json.dumps(
        {
            "texts": [whole.content, streamed.content, OpenAI(**OF_MODEL, max_tokens=int(TOKENS)).invoke(PROMPT)],
            "usage": [usage(whole), usage(streamed)],
            "details": whole.response_metadata["token_usage"]["completion_tokens_details"],
            "calls": [[call["name"], call["args"]] for call in (*asked[-2].tool_calls, *streamed_calls)],
            "answer": model.bind_tools([Add]).invoke(asked).content,
            "refused": refused(model.with_structured_output(Add), PROMPT),
            "too long": refused(model, PROMPT * 1000),
        }
    )
)
