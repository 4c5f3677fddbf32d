"""kube-score finds nothing in the chart's objects but what stands here with a reason.

https://github.com/zegl/kube-score/blob/master/README_CHECKS.md
"""

import json
import subprocess

import pytest
import yaml

from cluster import binaries

from .conftest import NAMESPACED, Helm, Values

pytestmark = pytest.mark.nightly

EXCEPTIONS = {
    "container-resources": "No CPU limit: throttling would delay the Lease's renewal, and answers to autoscalers.",
    "container-ephemeral-storage-request-and-limit": "The root file system is read-only, and no volume is on the"
    " disk: the log is all that they write there, and the kubelet rotates it.",
    "pod-networkpolicy": "It wants egress limited, too: the API server's address is not known to a chart. Ingress is"
    " with `networkPolicy.enabled`, off by default, as who scrapes is not known either.",
    "deployment-has-host-podantiaffinity": "Pods spread by topologySpreadConstraints, which it does not read.",
    "container-image-pull-policy": "A tag of a release never moves, and a digest cannot: `Always` would only ask the"
    " registry at each start.",
    "deployment-replicas": "One operator is enough: it restarts in seconds, and a second one waits for the Lease.",
}
"""Check to the reason for which the chart does not pass it by default."""
HARDENED: Values = {"replicas": 2, "image": {"pullPolicy": "Always"}, "networkPolicy": {"enabled": True}}
PASSED_THEN = {"container-image-pull-policy", "deployment-replicas"}
WARNING = 5
"""Grades from here down are findings."""


def failed(helm: Helm, values: Values) -> set[str]:
    """Checks that an object of the chart does not pass."""
    score = binaries.ensure(["kube-score"], print)["kube-score"]
    command = [str(score), "score", "--kubernetes-version", "v1.30", "--output-format", "json", "-"]
    # kube-score reads no definitions of custom resources.
    objects = [o for o in helm.template(values) if o["kind"] != "CustomResourceDefinition"]
    done = subprocess.run(command, input=yaml.safe_dump_all(objects), capture_output=True, text=True, check=False)
    scored = json.loads(done.stdout)
    assert {"Deployment"} <= {each["type_meta"]["kind"] for each in scored}, done.stderr
    checks = [check for each in scored for check in each["checks"] if not check["skipped"]]
    return {check["check"]["id"] for check in checks if check["grade"] <= WARNING}


@pytest.mark.parametrize(
    ("values", "passed"),
    [({}, set[str]()), (HARDENED, PASSED_THEN), (NAMESPACED, {"deployment-has-host-podantiaffinity"})],
    ids=["default", "hardened", "one pod has no other to keep away from"],
)
def test_each_check_passes_or_has_a_reason(helm: Helm, values: Values, passed: set[str]) -> None:
    assert failed(helm, values) == EXCEPTIONS.keys() - passed
