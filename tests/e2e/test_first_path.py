"""The first path: a service that is Ready streams completions, says the truth, and goes without a trace."""

import pytest
import tritonclient.grpc as triton

from .completions import PROMPTS, inputs, stream, text
from .conftest import OF_METRICS, Site, wait_for


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_streamed_with_speculation_equals_the_target_alone(client: triton.InferenceServerClient, prompt: str) -> None:
    with_draft, alone = stream(client, prompt, 4), stream(client, prompt, 0)
    assert text(with_draft) == text(alone)
    assert len(with_draft) > 2, "it streams"
    accepted = sum(int(c["num_accepted_draft_tokens"].flat[0]) for c in with_draft)
    assert accepted > 0, "the draft is worth something on real code"
    last = with_draft[-1]
    assert int(last["total_accepted_draft_tokens"].flat[0]) == accepted


def test_unary_clients_use_upstreams_name(client: triton.InferenceServerClient) -> None:
    answer = client.infer("tensorrt_llm_bls", inputs(PROMPTS[0], 4, stream=False))
    assert answer.as_numpy("text_output").flat[0].decode().endswith(text(stream(client, PROMPTS[0], 0)))


def test_a_bad_request_is_refused_to_its_sender_alone(client: triton.InferenceServerClient) -> None:
    with pytest.raises(triton.InferenceServerException, match=r"(?i)prompt"):
        client.infer("tensorrt_llm_bls", inputs("", 4, stream=False))
    assert text(stream(client, PROMPTS[0], 4))


def test_the_truth_in_columns_and_conditions(site: Site) -> None:
    header, row = site.run("get", "sis", "quickstart").splitlines()
    assert "READY" in header
    assert row.split()[:3] == ["quickstart", "DraftTarget", "True"]
    measured = {"MetricsAvailable", "SpeculationActive", "SpeculationBeneficial"}
    wait_for("the conditions of its metrics", lambda: site.conditions("quickstart").keys() >= measured)
    conditions = site.conditions("quickstart")
    assert {kind: c["status"] for kind, c in conditions.items() if kind not in OF_METRICS} == {
        "Ready": "True",
        "SpecAccepted": "True",
        "ModelsReady": "True",
        "PairCompatible": "True",
        "Available": "True",
    }


def test_deleting_the_resource_removes_all(site: Site) -> None:
    site.apply("second", draft=None, speculation={"decodingType": "None"})
    site.wait_condition("second", "Ready", "True")
    with triton.InferenceServerClient(site.address("second")) as alone:
        assert text(stream(alone, PROMPTS[0], 4)), "without a draft the target serves alone"
    site.run("delete", "sis", "second")
    kinds = "pods,deployments,services,configmaps,serviceaccounts,jobs"
    wait_for("everything of it to be gone", lambda: not site.items(kinds, site.label("second")))
