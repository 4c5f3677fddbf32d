from collections.abc import Iterator

import pytest

from support.serving import pb_utils
from tandem_serving.adapter import inner_calls

pb_utils.install()  # the adapters import it by its name


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[pb_utils.InferenceRequest]]:
    """The inner calls of models, in order; a test answers them by `pb_utils.answers`."""
    monkeypatch.setattr(inner_calls, "SERVER", inner_calls.ServerState())
    made: list[pb_utils.InferenceRequest] = []
    execute, answer = pb_utils.InferenceRequest.exec, pb_utils.answers[0]

    def kept(call: pb_utils.InferenceRequest, decoupled: bool = False) -> object:
        made.append(call)
        return execute(call, decoupled)

    monkeypatch.setattr(pb_utils.InferenceRequest, "exec", kept)
    yield made
    pb_utils.answers[0] = answer
