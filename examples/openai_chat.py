"""A streamed chat with a service, by OpenAI's own client (`pip install openai`).

kubectl port-forward service/quickstart-triton 9000:9000 &
export OPENAI_BASE_URL=http://localhost:9000/v1 OPENAI_API_KEY=none
python examples/openai_chat.py quickstart "def fibonacci(n):"
"""

import sys

import openai

name, message = sys.argv[1:]
client = openai.OpenAI()
stream = client.chat.completions.create(
    model=name,
    messages=[{"role": "user", "content": message}],
    max_tokens=128,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    elif chunk.usage:
        print(f"\n{chunk.usage.to_json(indent=None)}")
