"""The pods of Jobs: what the administrator and the service add to what each needs. Rows are YAML."""

import json
from typing import Any

import pytest
import yaml

from support.services import QUICKSTART, parse
from support.world import HUB, World, fetched
from tandem import names
from tandem.children import Task, task_job
from tandem.children.job_pod import job_pod
from tandem.settings import JobSettings, Settings

POD = {
    "containers": [{"name": "triton", "env": [{"name": "HOME", "value": "/tmp"}], "volumeMounts": []}],
    "initContainers": [{"name": "tandem", "resources": {"limits": {"memory": "128Mi"}}}],
    "volumes": [],
}

# What who writes, and what the pod of the Job (or its container) then has.
ROWS: list[dict[str, Any]] = yaml.safe_load("""
- reason: a proxy of the whole cluster
  defaults: {env: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]}
  env: {HTTPS_PROXY: "http://proxy:3128", HOME: /tmp}
- reason: the service's own proxy is over the cluster's, and its jobs' over its podTemplate's
  defaults: {env: [{name: HTTPS_PROXY, value: a}, {name: NO_PROXY, value: a}, {name: X, value: a}]}
  podTemplate:
    spec: {containers: [{name: triton, env: [{name: HTTPS_PROXY, value: b}, {name: NO_PROXY, value: b}]}]}
  jobs: {env: [{name: HTTPS_PROXY, value: c}]}
  env: {HTTPS_PROXY: c, NO_PROXY: b, X: a, HOME: /tmp}
- reason: what Tandem decides stays
  defaults: {env: [{name: HOME, value: /root}]}
  env: {HOME: /tmp}
- reason: variables of ConfigMaps and Secrets
  defaults: {envFrom: [{configMapRef: {name: proxy}}]}
  podTemplate: {spec: {containers: [{name: triton, envFrom: [{secretRef: {name: mine}}]}]}}
  jobs: {envFrom: [{secretRef: {name: jobs}}]}
  container: {envFrom: [{configMapRef: {name: proxy}}, {secretRef: {name: mine}}, {secretRef: {name: jobs}}]}
- reason: a mesh is told to stay out
  defaults: {annotations: {sidecar.istio.io/inject: "false"}, labels: {cost: shared}}
  podTemplate: {metadata: {labels: {team: a, cost: team}, annotations: {note: b}}}
  jobs: {labels: {kind: job}}
  metadata:
    labels: {cost: team, team: a, kind: job}
    annotations: {sidecar.istio.io/inject: "false", note: b}
- reason: a private authority, at a key of its own
  defaults: {caConfigMap: cluster-ca}
  jobs: {caConfigMap: mine, caKey: ca-bundle.crt}
  pod: {volumes: [{name: tandem-ca, configMap: {name: mine}}]}
  container: {volumeMounts: [{name: tandem-ca, mountPath: /etc/tandem/ca, readOnly: true}]}
  env:
    SSL_CERT_FILE: /etc/tandem/ca/ca-bundle.crt
    REQUESTS_CA_BUNDLE: /etc/tandem/ca/ca-bundle.crt
    CURL_CA_BUNDLE: /etc/tandem/ca/ca-bundle.crt
    AWS_CA_BUNDLE: /etc/tandem/ca/ca-bundle.crt
    HOME: /tmp
- reason: the servers' volume of certificates, not their storage, which one node may hold
  podTemplate:
    spec:
      volumes:
        - {name: certificates, secret: {secretName: ca}}
        - {name: data, persistentVolumeClaim: {claimName: data}}
        - {name: scratch, ephemeral: {volumeClaimTemplate: {}}}
      containers:
        - name: triton
          volumeMounts:
            - {name: certificates, mountPath: /etc/certificates}
            - {name: data, mountPath: /data}
            - {name: scratch, mountPath: /scratch}
  pod: {volumes: [{name: certificates, secret: {secretName: ca}}]}
  container: {volumeMounts: [{name: certificates, mountPath: /etc/certificates}]}
- reason: pull secrets of the cluster
  defaults: {imagePullSecrets: [{name: registry}]}
  pod: {imagePullSecrets: [{name: registry}]}
- reason: the same image is pulled as the servers' is
  podTemplate: {spec: {containers: [{name: triton, imagePullPolicy: Always}]}}
  container: {imagePullPolicy: Always}
""")


@pytest.mark.parametrize("row", ROWS, ids=[row["reason"] for row in ROWS])
def test_what_is_added(row: dict[str, Any]) -> None:
    service = parse(QUICKSTART, podTemplate=row.get("podTemplate"), jobs=row.get("jobs"))
    made = job_pod(service.spec, JobSettings.model_validate(row.get("defaults", {})), names.PREFLIGHT, POD)
    (container,) = made.spec["containers"]
    assert made.metadata == row.get("metadata", {}), row["reason"]
    for field, value in row.get("pod", {"volumes": []}).items():
        assert made.spec[field] == value, row["reason"]
    for field, value in row.get("container", {}).items():
        assert container[field] == value, row["reason"]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert env == row.get("env", {"HOME": "/tmp"}), row["reason"]


RESOURCES: list[dict[str, Any]] = yaml.safe_load("""
- {reason: a download has limits by itself, component: fetch,
   requests: {cpu: 200m, memory: 256Mi}, limits: {cpu: "4", memory: 2Gi}}
- {reason: "a ResourceQuota on CPUs: the cluster's limits", component: fetch,
   defaults: {resources: {limits: {cpu: "2"}}},
   requests: {cpu: 200m, memory: 256Mi}, limits: {cpu: "2", memory: 2Gi}}
- {reason: a limit below the request that we would make lowers it, component: preflight,
   defaults: {resources: {limits: {memory: 512Mi}}},
   requests: {cpu: 200m, memory: 512Mi}, limits: {cpu: "4", memory: 512Mi}}
- {reason: a request above our limit raises it, component: fetch,
   jobs: {resources: {requests: {memory: 8Gi}}},
   requests: {cpu: 200m, memory: 8Gi}, limits: {cpu: "4", memory: 8Gi}}
- {reason: null removes, component: fetch,
   jobs: {resources: {limits: {cpu: null}}},
   requests: {cpu: 200m, memory: 256Mi}, limits: {memory: 2Gi}}
- {reason: a build takes what the model takes, component: build, requests: {cpu: "2", memory: 16Gi}}
- {reason: a build has what the servers have, and no check has, component: build,
   podTemplate: {spec: {containers: [{name: triton, resources: {limits: {memory: 400Gi, cpu: 16}}}]}},
   defaults: {resources: {limits: {memory: 1Gi}}},
   requests: {cpu: "2", memory: 1Gi}, limits: {memory: 400Gi, cpu: 16}}
- {reason: a check does not, component: preflight,
   podTemplate: {spec: {containers: [{name: triton, resources: {limits: {memory: 400Gi}}}]}},
   requests: {cpu: 200m, memory: 1Gi}, limits: {cpu: "4", memory: 16Gi}}
- {reason: builds of their own, component: build,
   defaults: {buildResources: {limits: {memory: 100Gi}}},
   jobs: {resources: {limits: {memory: 1Gi}}, buildResources: {requests: {memory: 300Gi}, limits: {memory: 300Gi}}},
   requests: {cpu: "2", memory: 300Gi}, limits: {memory: 300Gi}}
""")


@pytest.mark.parametrize("row", RESOURCES, ids=[row["reason"] for row in RESOURCES])
def test_requests_and_limits(row: dict[str, Any]) -> None:
    service = parse(QUICKSTART, podTemplate=row.get("podTemplate"), jobs=row.get("jobs"))
    made = job_pod(service.spec, JobSettings.model_validate(row.get("defaults", {})), row["component"], POD)
    (container,) = made.spec["containers"]
    wanted = {side: row[side] for side in ("requests", "limits") if side in row}
    assert container["resources"] == wanted, row["reason"]


def test_the_init_container_has_a_limit_of_every_kind_and_the_users_over_it() -> None:
    template = {"spec": {"initContainers": [{"name": "tandem", "resources": {"limits": {"memory": "256Mi"}}}]}}
    service = parse(QUICKSTART, podTemplate=template)
    defaults = JobSettings.model_validate({"resources": {"limits": {"cpu": "2"}}})
    (container,) = job_pod(service.spec, defaults, names.PREFLIGHT, POD).spec["initContainers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "256Mi"}
    assert container["resources"]["requests"] == {"cpu": "10m", "memory": "32Mi"}


def test_the_labels_that_find_a_pod_are_ours() -> None:
    service = parse(QUICKSTART)
    metadata = {"labels": {names.LABEL_COMPONENT: "mine", "team": "a"}, "annotations": {"n": "1"}}
    task = Task("quickstart", names.FETCH, "0123456789", {}, (), "", metadata=metadata)
    template = task_job(service, task)["spec"]["template"]
    assert template["metadata"]["labels"] == {**names.labels("quickstart", names.FETCH), "team": "a"}
    assert template["metadata"]["annotations"] == {"n": "1"}
    assert task.pod_digest != Task("quickstart", names.FETCH, "0123456789", {}, (), "").pod_digest


def test_a_download_is_not_offline_though_its_servers_are(settings: Settings) -> None:
    container = {"name": "triton", "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}, {"name": "A", "value": "a"}]}
    world, service = World(settings), parse(QUICKSTART, **HUB, podTemplate={"spec": {"containers": [container]}})
    world.step(service)
    for name in world.jobs():
        (found,) = world.objects["Job", name]["spec"]["template"]["spec"]["containers"]
        values = {variable["name"]: variable.get("value") for variable in found["env"]}
        assert (values["HF_HUB_OFFLINE"], values["A"]) == ("0", "a")


@pytest.mark.parametrize(("component", "says"), [(names.FETCH, True), (names.BUILD, True), (names.PREFLIGHT, False)])
def test_what_fills_the_cache_says_for_which_namespace(component: str, says: bool) -> None:
    """Nobody else's value is over it."""
    defaults = JobSettings.model_validate({"env": [{"name": "TANDEM_NAMESPACE", "value": "another"}] if says else []})
    (container,) = job_pod(parse(QUICKSTART).spec, defaults, component, POD).spec["containers"]
    found = [each["valueFrom"] for each in container["env"] if each["name"] == "TANDEM_NAMESPACE"]
    assert found == [{"fieldRef": {"fieldPath": "metadata.namespace"}}] * says


def test_every_job_of_a_service_has_them_and_no_server_rolls(settings: Settings) -> None:
    """The administrator's defaults and `spec.jobs` are no part of a revision."""
    defaults = JobSettings.model_validate({"env": [{"name": "HTTPS_PROXY", "value": "p"}], "caConfigMap": "ca"})
    before, after = World(settings), World(settings.model_copy(update={"jobs": defaults}))
    plain, own = parse(QUICKSTART, **HUB), parse(QUICKSTART, **HUB, jobs={"labels": {"team": "a"}})
    digests = []
    for world, service in ((before, plain), (after, own)):
        world.step(service)
        for index, name in enumerate(world.jobs()):
            world.finish(name, json.dumps({**json.loads(fetched(f"models/{str(index) * 32}"))}))
        decision, _ = world.step(service)
        decision, _ = world.step(service)
        assert decision.revision
        digests.append(decision.revision.digest)
        jobs = [world.objects["Job", name]["spec"]["template"] for name in world.jobs()]
        assert jobs
        for job in jobs:
            found = {variable["name"] for variable in job["spec"]["containers"][0]["env"]}
            assert ({"HTTPS_PROXY", "SSL_CERT_FILE"} <= found) is (world is after)
            assert (job["metadata"]["labels"].get("team") == "a") is (world is after)
    assert digests[0] == digests[1]
