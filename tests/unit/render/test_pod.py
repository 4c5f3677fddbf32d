"""Pods by placement, model source and pod template: what each row adds to the base, as YAML."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from support.pods import PROFILE, ROWS, rendered
from tandem.render import PodDefaults
from tandem.render.v1.pod import preflight_pod, server_pod, template_metadata, worker_pod

CPU = PROFILE.model_copy(update={"gpus": False})


def difference(base: Any, other: Any) -> Any:
    """What `other` has beyond `base`: fields that differ, None for those that are gone, and items that are new."""
    if isinstance(base, dict) and isinstance(other, dict):
        changed = {k: difference(base.get(k), v) for k, v in other.items() if base.get(k) != v}
        return changed | {k: None for k in base if k not in other}
    if isinstance(base, list) and isinstance(other, list) and all(isinstance(item, dict) for item in other):
        if len(base) == len(other) == 1:
            return [difference(base[0], other[0])]
        return [item for item in other if item not in base]
    return other


@pytest.mark.parametrize("row", ROWS, ids=[row["reason"] for row in ROWS])
def test_what_the_spec_adds_to_the_servers_pod(row: dict[str, Any]) -> None:
    found = difference(server_pod(rendered("{}")), server_pod(rendered(yaml.safe_dump(row["spec"]))))
    assert found == row["pod"], row["reason"]


def test_no_gpu_is_too_old_where_nodes_say_their_age() -> None:
    """NotIn also takes nodes without the label, of clusters without NVIDIA's feature discovery."""
    wanted = yaml.safe_load("""
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions:
              - {key: nvidia.com/gpu.compute.major, operator: NotIn, values: ["1", "2", "3", "4", "5", "6", "7"]}
    """)
    assert server_pod(rendered("{}"))["affinity"] == preflight_pod(rendered("{}"))["affinity"] == wanted
    assert "affinity" not in server_pod(rendered("{}", CPU))


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NULLS = (
    "nodeAffinity: null",
    f"nodeAffinity: {{{REQUIRED}: null}}",
    f"nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: null}}}}",
    f"nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{matchExpressions: null}}]}}}}",
)


@pytest.mark.parametrize("affinity", NULLS)
def test_what_is_written_as_null_is_absent(affinity: str) -> None:
    """As templates write what has no value. The API server keeps it: the object is not its own."""
    assert server_pod(rendered(f"placement: {{affinity: {{{affinity}}}}}")) == server_pod(rendered("{}"))


def test_without_gpus_placement_gpu_means_nothing() -> None:
    asked = rendered("placement: {gpu: {product: [A100], resourceName: own/gpu}}", CPU)
    assert server_pod(asked) == server_pod(rendered("{}", CPU))
    assert server_pod(asked)["containers"][0]["resources"] == PROFILE.resources


def test_the_preflight_runs_on_the_same_nodes_without_devices() -> None:
    spec = """
    placement:
      gpu: {product: [NVIDIA-H200]}
      nodeSelector: {pool: gpu}
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
      resourceClaims: [{name: gpus, resourceClaimName: mine}]
    podTemplate: {spec: {imagePullSecrets: [{name: registry}], containers: [{name: triton, env: [{name: A}]}]}}
    """
    server, preflight = server_pod(rendered(spec)), preflight_pod(rendered(spec))
    for field in ("nodeSelector", "affinity", "imagePullSecrets", "securityContext"):
        assert preflight[field] == server[field]
    assert not {"resourceClaims", "topologySpreadConstraints"} & preflight.keys()
    (container,) = preflight["containers"]
    assert container["resources"] == PROFILE.resources
    assert [variable["name"] for variable in container["env"]] == ["HOME"], "`children.job_pod` adds the rest"


def test_one_pod_has_no_workers() -> None:
    assert worker_pod(rendered("target: {tensorParallelSize: 8}")) is None


def test_leader_and_workers_of_a_group_differ_in_what_they_run() -> None:
    group = rendered("target: {tensorParallelSize: 16}")
    leader, worker = server_pod(group), worker_pod(group)
    assert worker is not None
    assert worker["terminationGracePeriodSeconds"] > leader["terminationGracePeriodSeconds"]
    (ranks,), (serves,) = worker["containers"], leader["containers"]
    assert ranks["command"][2:] == ["worker"]
    assert serves["command"][2] == "serve"
    assert [port["containerPort"] for port in ranks["ports"]] == [2222]
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle"} & ranks.keys()
    for field in ("image", "resources", "volumeMounts", "securityContext"):
        assert ranks[field] == serves[field]
    assert {"name": "ssh", "mountPath": "/etc/tandem/ssh", "readOnly": True} in ranks["volumeMounts"]
    assert ranks["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_labels_and_annotations_of_the_user() -> None:
    metadata = "podTemplate: {metadata: {labels: {team: a}, annotations: {note: b}}}"
    assert template_metadata(rendered(metadata)) == {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    assert template_metadata(rendered("{}")) == {"labels": {}, "annotations": {}}


DEFAULTS = PodDefaults(init_resources={"limits": {"cpu": "1"}}, image_pull_secrets=("registry",))


@pytest.mark.parametrize(
    ("spec", "requests", "reason"),
    [
        ("target: {tensorParallelSize: 2}", {"cpu": "4", "memory": "8Gi"}, "the profile has CPUs, each GPU 4 GiB"),
        (
            "podTemplate: {spec: {containers: [{name: triton, resources: {limits: {memory: 2Gi}}}]}}",
            {"cpu": "4"},
            "a limit is a request, which ours might exceed",
        ),
        (
            "podTemplate: {spec: {containers: [{name: triton, resources: {requests: {memory: 1Gi, cpu: 3}}}]}}",
            {"cpu": 3, "memory": "1Gi"},
            "the user's",
        ),
    ],
)
def test_a_server_has_requests_by_default(spec: str, requests: dict[str, Any], reason: str) -> None:
    profile = PROFILE.model_copy(update={"resources": {"requests": {"cpu": "4"}}})
    (container,) = server_pod(rendered(spec, profile))["containers"]
    assert container["resources"]["requests"] == requests, reason


@pytest.mark.parametrize(("deadline", "minutes"), [(60, 60), (3900, 60), (7500, 120), (604800, 10075)])
def test_a_server_may_start_for_an_hour_or_nearly_as_long_as_its_rollout(deadline: int, minutes: int) -> None:
    (container,) = server_pod(rendered(f"rollout: {{progressDeadlineSeconds: {deadline}}}"))["containers"]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 60 * minutes


def test_what_the_administrator_gives_to_all_pods() -> None:
    inputs = replace(rendered("podTemplate: {spec: {imagePullSecrets: [{name: mine}]}}"), pods=DEFAULTS)
    for pod in (server_pod(inputs), preflight_pod(inputs)):
        assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mine"}]
        assert pod["initContainers"][0]["resources"] == {"limits": {"cpu": "1"}}
        assert {"runAsUser", "runAsGroup", "fsGroup"} <= pod["securityContext"].keys()


def test_the_platform_chooses_the_users() -> None:
    """OpenShift's restricted-v2 refuses users and groups outside the namespace's range."""
    inputs = replace(rendered("{}"), pods=PodDefaults(user_ids="Platform"))
    for pod in (server_pod(inputs), preflight_pod(inputs)):
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & pod["securityContext"].keys()
        assert pod["securityContext"]["runAsNonRoot"]
