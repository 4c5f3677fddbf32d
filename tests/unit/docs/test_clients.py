"""The page on the OpenAI endpoint names the clients' versions that the tests run with."""

import re

import pytest

from .pages import ROOT

CLIENTS = {
    "openai": "tests/requirements.txt",
    "langchain-openai": "tests/triton/clients-requirements.txt",
    "litellm": "tests/triton/clients-requirements.txt",
    "aiperf": "tests/triton/aiperf-requirements.txt",
}


@pytest.mark.parametrize(("client", "lock"), CLIENTS.items())
def test_versions_are_those_of_the_locks(client: str, lock: str) -> None:
    found = re.search(rf"^{client}==(\S+)", (ROOT / lock).read_text(), re.MULTILINE)
    assert found
    rows = re.findall(r"^\| .*", (ROOT / "docs/reference/openai.md").read_text(), re.MULTILINE)
    assert any(re.match(rf"\| .*{client}.* {re.escape(found[1])}\W", row, re.IGNORECASE) for row in rows)
