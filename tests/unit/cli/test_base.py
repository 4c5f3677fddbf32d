"""`tandem bench --base`: the service that runs the target alone, and that it goes again."""

import json
from typing import Any

import pytest
import yaml

from support.services import DATA
from tandem.api.types import SpeculativeInferenceService
from tandem.client import kubectl
from tandem.client.bench import base
from tandem.client.generate.app import Endpoint
from tandem.client.kubectl import ClusterError

INPUTS = sorted((DATA / "input").glob("*.yaml"))


def live(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)
    found["metadata"] |= {"namespace": "demo", "uid": "u-1", "resourceVersion": "7", "generation": 3}
    return {**found, "status": {"replicas": 2}}


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.stem)
def test_it_differs_in_speculation_alone(path: Any) -> None:
    service = live(path.read_text(encoding="utf-8"))
    service["spec"] |= {"replicas": 4, "autoscaling": {"maxReplicas": 8}}
    made = base.base_of(service)
    parsed = SpeculativeInferenceService.model_validate(made).spec
    before = SpeculativeInferenceService.model_validate(service).spec
    assert parsed.speculation.decoding_type == "None"
    assert (parsed.draft, parsed.autoscaling, parsed.replicas) == (None, None, 1)
    assert parsed.target == before.target
    assert parsed.serving == before.serving
    assert parsed.runtime.mode == before.runtime.mode
    assert "speculative_config" not in parsed.runtime.extra_llm_args
    assert set(made["metadata"]) == {"name", "namespace", "ownerReferences"}
    assert service["spec"]["replicas"] == 4, "what was read is not changed"


def test_its_name_is_one_of_a_service() -> None:
    assert base.base_name("llama") == "llama-base"
    assert base.base_name("a" * 40) == "a" * 35 + "-base"


class Cluster:
    """What kubectl is asked for."""

    def __init__(self, refuses: bool = False) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.refuses = refuses

    async def get(self, *_: str) -> dict[str, Any]:
        return live((DATA / "input/llmapi-eagle3.yaml").read_text(encoding="utf-8"))

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        self.asked.append(arguments)
        if self.refuses:
            raise ClusterError("already exists")
        if stdin:
            assert json.loads(stdin)["metadata"]["ownerReferences"][0]["uid"] == "u-1"
        return ""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(kubectl, "get", made.get)
    monkeypatch.setattr(kubectl, "kubectl", made.kubectl)
    return made


async def test_it_goes_whatever_comes_between(cluster: Cluster) -> None:
    with pytest.raises(RuntimeError, match="the server is gone"):
        async with base.base_service(Endpoint("eagle", "demo"), lambda _: None) as made:  # type: ignore[arg-type]
            assert made.name.endswith("-base")
            assert made.wait_seconds >= 3600, "a model may load for an hour"
            raise RuntimeError("the server is gone")
    assert [arguments[0] for arguments in cluster.asked] == ["create", "delete"]
    assert made.name in cluster.asked[1]


async def test_one_that_is_there_is_left_alone(cluster: Cluster) -> None:
    """Somebody else's, or another benchmark's."""
    cluster.refuses = True
    with pytest.raises(ClusterError, match="already exists"):
        async with base.base_service(Endpoint("eagle", "demo"), lambda _: None):  # type: ignore[arg-type]
            pass
    assert [arguments[0] for arguments in cluster.asked] == ["create"]
