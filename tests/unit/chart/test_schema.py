"""Values that are Kubernetes' own fields: what is misspelt in them is refused, what Kubernetes has is taken."""

import pytest

from .conftest import Helm, Values

REFUSED: list[tuple[str, Values, str, str]] = [
    # reason, values, where, what Helm reports of it
    (
        "a misspelt resource",
        {"resources": {"limits": {"memroy": "1Gi"}}},
        "/resources/limits",
        "'memroy' not allowed",
    ),
    (
        "no quantity",
        {"resources": {"limits": {"cpu": "two"}}},
        "/resources/limits/cpu",
        "'two' does not match pattern",
    ),
    (
        "of the metrics server",
        {"metricsServer": {"resources": {"request": {}}}},
        "/metricsServer/resources",
        "'request' not allowed",
    ),
    ("of Jobs", {"jobs": {"resources": {"limits": {"gpu": 1}}}}, "/jobs/resources/limits", "'gpu' not allowed"),
    (
        "of profiles",
        {"profiles": [{"name": "a", "resources": {"limits": {"memroy": "1Gi"}}}]},
        "/profiles/0/resources/limits",
        "'memroy' not allowed",
    ),
    ("a claim", {"resources": {"claims": [{"nme": "a"}]}}, "/resources/claims/0", "'nme' not allowed"),
    ("a misspelt toleration", {"tolerations": [{"efect": "NoSchedule"}]}, "/tolerations/0", "'efect' not allowed"),
    (
        "seconds that are a word",
        {"metricsServer": {"tolerations": [{"tolerationSeconds": "5m"}]}},
        "/tolerations/0/tolerationSeconds",
        "got string, want integer",
    ),
    (
        "deep in an affinity",
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKy": "a"}]}}},
        "/requiredDuringSchedulingIgnoredDuringExecution/0",
        "'topologyKy' not allowed",
    ),
    ("a spread", {"topologySpreadConstraints": [{"maxSkew": 1}]}, "/topologySpreadConstraints/0", "'topologyKey'"),
    ("a context", {"podSecurityContext": {"runAsUsr": 1}}, "/podSecurityContext", "'runAsUsr' not allowed"),
    ("of a container", {"securityContext": {"capabilities": {"dropp": []}}}, "/capabilities", "'dropp' not allowed"),
    ("a variable", {"extraEnv": [{"nme": "A"}]}, "/extraEnv/0", "'nme' not allowed"),
    ("of Jobs too", {"jobs": {"env": [{"name": "A", "valeu": "b"}]}}, "/jobs/env/0", "'valeu' not allowed"),
    ("a volume", {"extraVolumes": [{"name": "a", "emptyDirr": {}}]}, "/extraVolumes/0", "'emptyDirr' not allowed"),
    ("a mount", {"extraVolumeMounts": [{"name": "a"}]}, "/extraVolumeMounts/0", "missing property 'mountPath'"),
    ("a peer", {"networkPolicy": {"from": [{"podSelektor": {}}]}}, "/networkPolicy/from/0", "'podSelektor' not"),
    ("of services", {"clientPeers": [{"podSelektor": {}}]}, "/clientPeers/0", "'podSelektor' not allowed"),
    ("a name with capitals", {"fullnameOverride": "Tandem"}, "/fullnameOverride", "does not match pattern"),
    ("longer than suffixes leave room for", {"fullnameOverride": "a" * 46}, "/fullnameOverride", "does not match"),
    ("a Service's name begins with a letter", {"nameOverride": "2nd"}, "/nameOverride", "does not match pattern"),
    ("a trigger of no such form", {"keda": {"allowedTriggers": ["Cron"]}}, "/allowedTriggers/0", "does not match"),
]


@pytest.mark.parametrize(("values", "where", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused(helm: Helm, values: Values, where: str, message: str) -> None:
    reported = helm.refusal(values)
    assert where in reported
    assert message in reported


TAKEN: list[tuple[str, Values]] = [
    (
        "a GPU, huge pages, a number",
        {"resources": {"limits": {"nvidia.com/gpu": 1, "hugepages-2Mi": "4Mi", "cpu": 0.5}}},
    ),
    ("a claim", {"resources": {"claims": [{"name": "gpus", "request": "one"}]}}),
    ("a toleration of everything", {"tolerations": [{"operator": "Exists"}]}),
    ("null is the operator's", {"metricsServer": {"tolerations": None, "affinity": None}}),
    ("a Secret's key", {"extraEnv": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}),
    (
        "a projected volume",
        {"extraVolumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]},
    ),
    ("a block of addresses", {"clientPeers": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}),
    ("an operating system's", {"securityContext": {"seLinuxOptions": {"type": "t"}}}),
]


@pytest.mark.parametrize("values", [t[1] for t in TAKEN], ids=[t[0] for t in TAKEN])
def test_what_kubernetes_has_is_taken(helm: Helm, values: Values) -> None:
    assert helm.template(values)
