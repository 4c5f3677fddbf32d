"""OpenAI's own client and a served pair, through the Service."""

import os
import subprocess
import sys
from collections.abc import Iterator

import openai
import pytest
import tritonclient.grpc as triton

from .completions import MAX_TOKENS, PROMPTS, stream, text
from .conftest import Site, wait_for


def openai_client(site: Site, name: str, key: str = "none") -> openai.OpenAI:
    """A client of the address in status, by the Service's number instead of its name."""
    service = site.get("service", f"{name}-triton")
    url = site.get("sis", name)["status"]["openAIURL"]
    host = f"{name}-triton.default.svc"
    assert host in url
    return openai.OpenAI(base_url=url.replace(host, service["spec"]["clusterIP"]), api_key=key, max_retries=0)


@pytest.fixture
def completions(site: Site) -> Iterator[openai.OpenAI]:
    with openai_client(site, "quickstart") as made:
        yield made


@pytest.mark.parametrize("prompt", PROMPTS[:3], ids=range(3))
def test_a_chat_says_what_the_model_says(
    completions: openai.OpenAI, client: triton.InferenceServerClient, prompt: str
) -> None:
    """The pair's chat template gives a message's text as it is."""
    chunks = list(
        completions.chat.completions.create(
            model="quickstart",
            messages=[{"role": "user", "content": prompt}],
            max_tokens=MAX_TOKENS,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == text(stream(client, prompt, 0))
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == MAX_TOKENS
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.accepted_prediction_tokens


def test_keys_of_a_secret(site: Site, another: str) -> None:
    site.run("create", "secret", "generic", f"{another}-keys", "--from-literal=team=first")
    serving = {"openAI": {"apiKeySecret": f"{another}-keys", "servedModelName": "org/pair", "port": 443}}
    site.apply(another, serving=serving)
    site.wait_condition(another, "Ready", "True")

    def allowed(key: str) -> bool:
        try:
            answer = openai_client(site, another, key).completions.create(
                model="org/pair", prompt="x = ", max_tokens=2
            )
        except openai.AuthenticationError:
            return False
        return bool(answer.choices)

    assert allowed("first")
    assert not allowed("second")
    site.run("patch", "secret", f"{another}-keys", "-p", '{"stringData": {"team": "second"}}')
    wait_for("the new key", lambda: allowed("second"))
    assert not allowed("first")
    site.run("delete", "secret", f"{another}-keys")


def test_tandem_chat_answers_through_kubectl(site: Site, client: triton.InferenceServerClient) -> None:
    kubectl = site.cluster.kubectl
    environment = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)}
    environment["PATH"] = f"{kubectl.binary.parent}:{environment['PATH']}"
    command = [sys.executable, "-m", "tandem", "chat", "quickstart", "-n", "default", "--temperature", "0"]
    command += ["--max-tokens", str(MAX_TOKENS)]
    done = subprocess.run(
        command, input=PROMPTS[0], capture_output=True, text=True, timeout=240, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == text(stream(client, PROMPTS[0].strip(), 0)) + "\n"
