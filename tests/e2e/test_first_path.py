"""The first path: a service that is Ready streams completions, and stays up whatever happens to the operator."""

import json
import queue
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton
import yaml

from .conftest import REPOSITORY, Site, wait_for

PROMPTS = [json.loads(line)["prompt"] for line in (REPOSITORY / "examples/prompts.jsonl").read_text().splitlines()]


def tensor(name: str, value: Any, dtype: Any, triton_type: str) -> triton.InferInput:
    array = np.array([[value]], dtype=dtype)
    made = triton.InferInput(name, array.shape, triton_type)
    made.set_data_from_numpy(array)
    return made


def inputs(prompt: str, draft_tokens: int, *, stream: bool) -> list[triton.InferInput]:
    return [
        tensor("text_input", prompt.encode(), np.object_, "BYTES"),
        tensor("max_tokens", 48, np.int32, "INT32"),
        tensor("num_draft_tokens", draft_tokens, np.int32, "INT32"),
        tensor("stream", stream, np.bool_, "BOOL"),
    ]


def stream(client: triton.InferenceServerClient, prompt: str, draft_tokens: int) -> list[dict[str, Any]]:
    """The chunks of one completion, each as output name to value."""
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        "speculative_bls", inputs(prompt, draft_tokens, stream=True), enable_empty_final_response=True
    )
    chunks = []
    while True:
        result, error = answers.get(timeout=60)
        assert error is None, error
        response = result.get_response()
        if response.outputs:
            chunks.append({o.name: result.as_numpy(o.name) for o in response.outputs})
        if response.parameters["triton_final_response"].bool_param:
            break
    client.stop_stream()
    return chunks


def text(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["text_output"].flat[0].decode() for chunk in chunks)


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
    assert row.split()[:4] == ["quickstart", "BLS", "DraftTarget", "True"]
    conditions = site.conditions("quickstart")
    assert {kind: c["status"] for kind, c in conditions.items()} == {
        "Ready": "True",
        "SpecAccepted": "True",
        "ModelsReady": "True",
        "PairCompatible": "True",
        "Available": "True",
    }


def operator_pod(site: Site) -> dict[str, Any]:
    (pod,) = site.items("pods", "-n", "tandem-system", "-l", "app.kubernetes.io/component=operator")
    return pod


def processes_of(pod: dict[str, Any]) -> list[psutil.Process]:
    """The processes of Tandem in a pod, by its control group."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any("tandem" in word for word in process.info["cmdline"] or ())
        and pod["metadata"]["uid"] in control_group(process)
    ]


def control_group(process: psutil.Process) -> str:
    """Its control group's path; empty when it ended meanwhile."""
    try:
        return Path(f"/proc/{process.pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_the_operator_killed_with_kill_9_is_restarted_by_the_kubelet_and_replaces_nothing(site: Site) -> None:
    pods, before = site.server_pods("quickstart"), operator_pod(site)
    (process,) = processes_of(before)
    process.kill()

    def restarted() -> bool:
        (status,) = operator_pod(site)["status"]["containerStatuses"]
        return bool(status["ready"] and status["restartCount"] > 0)

    wait_for("the operator to be restarted and Ready", restarted, 90)
    assert operator_pod(site)["metadata"]["uid"] == before["metadata"]["uid"]
    assert site.server_pods("quickstart") == pods
    site.wait_condition("quickstart", "Ready", "True")


def test_the_operator_killed_and_restarted_replaces_nothing(site: Site) -> None:
    pods = site.server_pods("quickstart")
    before = operator_pod(site)["metadata"]["name"]
    site.run("delete", "pod", "-n", "tandem-system", before, "--grace-period=0", "--force")
    wait_for(
        "another operator pod to be Ready",
        lambda: any(
            pod["metadata"]["name"] != before
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
            for pod in site.items("pods", "-n", "tandem-system", "-l", "app.kubernetes.io/component=operator")
        ),
        90,
    )
    time.sleep(5)
    assert site.server_pods("quickstart") == pods
    site.wait_condition("quickstart", "Ready", "True")


def edited(**spec: Any) -> str:
    raw = yaml.safe_load((REPOSITORY / "examples/quickstart.yaml").read_text())
    raw["spec"] |= spec
    return json.dumps(raw)


def test_a_model_that_is_not_there_is_a_condition_and_pods_serve_on(
    site: Site, client: triton.InferenceServerClient
) -> None:
    pods = site.server_pods("quickstart")
    site.run("apply", "-f", "-", stdin=edited(target={"model": {"uri": "file:///no/such/model"}}))
    stalled = site.wait_condition("quickstart", "Stalled", "True")
    assert "/no/such/model" in stalled["message"]
    assert site.conditions("quickstart")["ModelsReady"]["status"] == "False"
    assert site.server_pods("quickstart") == pods
    assert text(stream(client, PROMPTS[0], 4))
    site.run("apply", "-f", str(REPOSITORY / "examples/quickstart.yaml"))
    site.wait_condition("quickstart", "Ready", "True")
    assert site.server_pods("quickstart") == pods


def test_deleting_the_resource_removes_all(site: Site, tmp_path: Path) -> None:
    raw = json.loads(edited())
    raw["metadata"]["name"] = "second"
    del raw["spec"]["draft"]
    raw["spec"]["speculation"] = {"decodingType": "None"}
    site.run("apply", "-f", "-", stdin=json.dumps(raw))
    site.wait_condition("second", "Ready", "True", 180)
    with triton.InferenceServerClient(site.address("second")) as alone:
        assert text(stream(alone, PROMPTS[0], 4)), "without a draft the target serves alone"
    site.run("delete", "sis", "second")
    kinds = "pods,deployments,services,configmaps,serviceaccounts,jobs"
    wait_for(
        "everything of it to be gone",
        lambda: not site.items(kinds, "-l", "serving.tandem.dev/service=second"),
        90,
    )
