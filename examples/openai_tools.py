"""A call of a tool and its answer, by OpenAI's own client (`pip install openai`).

The service's model must know tools, and the service its format: see torch-qwen.yaml.

kubectl port-forward service/torch-qwen-triton 9000 &
python examples/openai_tools.py torch-qwen "What is 12 times 31?"
"""

import sys

import openai
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel


class Multiply(BaseModel):
    """Multiply two numbers."""

    a: float
    b: float


name, message = sys.argv[1:3]
client = openai.OpenAI(base_url="http://localhost:9000/v1", api_key=sys.argv[3] if len(sys.argv) > 3 else "none")
messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": message}]
tools = [openai.pydantic_function_tool(Multiply)]
answer = client.chat.completions.parse(model=name, messages=messages, tools=tools).choices[0].message
messages.append(answer)  # type: ignore[arg-type] # a parsed message is sent back as it is: OpenAI's guide does so too
for call in answer.tool_calls or ():
    asked = call.function.parsed_arguments
    assert isinstance(asked, Multiply)
    print(f"{call.function.name}: {asked.a} times {asked.b}")
    messages.append({"role": "tool", "tool_call_id": call.id, "content": str(asked.a * asked.b)})
if answer.tool_calls:
    answer = client.chat.completions.parse(model=name, messages=messages, tools=tools).choices[0].message
print(answer.content)
