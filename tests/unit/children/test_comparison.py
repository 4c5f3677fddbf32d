"""The comparison of a manifest with the live object, as the API server shows it with managed fields."""

from typing import Any

import pytest
import yaml

from tandem.children.comparison import matches

LIVE = yaml.safe_load("""
metadata:
  name: a
  labels: {ours: "1", theirs: "2"}
  managedFields:
  - manager: tandem
    operation: Apply
    fieldsV1:
      f:metadata: {f:labels: {f:ours: {}}}
      f:spec:
        f:replicas: {}
        f:selector: {}
        f:behavior: {f:scaleUp: {f:tolerance: {}}}
        f:containers:
          'k:{"name":"triton"}':
            .: {}
            f:name: {}
            f:image: {}
            f:env:
              'k:{"name":"A"}': {.: {}, f:name: {}, f:value: {}}
              'k:{"name":"B"}': {.: {}, f:name: {}, f:valueFrom: {f:fieldRef: {}}}
            f:ports: {'k:{"containerPort":80,"protocol":"TCP"}': {.: {}, f:containerPort: {}}}
            f:resources: {f:limits: {f:cpu: {}, f:memory: {}}}
        f:finalizers: {'v:"x"': {}}
  - manager: tandem
    operation: Apply
    subresource: status
    fieldsV1: {f:status: {f:url: {}}}
  - manager: kubectl
    operation: Apply
    fieldsV1: {f:spec: {f:paused: {}}}
spec:
  replicas: 2
  paused: true
  selector: {matchLabels: {a: b}}
  behavior: {scaleUp: {tolerance: 50m}}
  finalizers: [x, y]
  containers:
  - {name: sidecar, image: s}
  - name: triton
    image: t
    terminationMessagePath: /dev/termination-log
    env:
    - {name: A, value: "1"}
    - {name: B, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}}
    ports: [{containerPort: 80, protocol: TCP}]
    resources: {limits: {cpu: "2", memory: 1Gi}}
status: {url: u, other: 1}
""")
WANTED = yaml.safe_load("""
apiVersion: v1
kind: Thing
metadata: {name: a, namespace: b, labels: {ours: "1"}}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  behavior: {scaleUp: {tolerance: 0.05}}
  finalizers: [x]
  containers:
  - name: triton
    image: t
    env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 2, memory: 1024Mi}}
""")


def changed(path: str, value: Any) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load(yaml.safe_dump(WANTED))
    *parents, last = path.split(".")
    node: Any = raw
    for parent in parents:
        node = node[int(parent)] if parent.isdigit() else node[parent]
    if value is None:
        del node[last]
    else:
        node[last] = value
    return raw


@pytest.mark.parametrize(
    ("manifest", "same", "reason"),
    [
        (
            WANTED,
            True,
            "defaults, other managers' parts and how quantities are written do not count",
        ),
        (changed("spec.containers.0.resources.limits.cpu", "2001m"), False, "another quantity"),
        (changed("spec.containers.0.resources.limits.cpu", "much"), False, "no quantity: the API server refuses it"),
        (changed("spec.containers.0.resources", {"limits": {"cpu": 2}}), False, "a limit is no longer wanted"),
        (changed("spec.behavior.scaleUp.tolerance", 0.051), False, "another share"),
        (changed("spec.containers.0.env.0.value", "1.0"), False, "equal as quantities, but it is a text"),
        (changed("spec.containers.0.ports.0.protocol", "UDP"), False, "another port"),
        (changed("spec.replicas", 3), False, "a value differs"),
        (changed("spec.replicas", None), False, "a field is ours and no longer wanted: applying drops it"),
        (changed("spec.paused", True), False, "equal but not ours yet: applying makes it ours"),
        (changed("metadata.labels", {"ours": "1", "new": "1"}), False, "a new label"),
        (changed("metadata.labels", {}), False, "a label is no longer wanted"),
        (changed("spec.selector", {"matchLabels": {"a": "c"}}), False, "inside an atomic map"),
        (changed("spec.containers.0.env.1.valueFrom.fieldRef.fieldPath", "spec.nodeName"), False, "another field"),
        (changed("spec.containers.0.env.1.valueFrom.fieldRef.apiVersion", "v2"), False, "no default"),
        (changed("spec.containers.0.image", "u"), False, "inside a keyed list item"),
        (changed("spec.containers.0.command", []), False, "a new field in a keyed list item"),
        (changed("spec.containers", []), False, "an item of ours is no longer wanted"),
        (changed("spec.finalizers", ["y"]), False, "another member of a set"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_matches(manifest: dict[str, Any], same: bool, reason: str) -> None:
    assert matches(manifest, LIVE) is same, reason


def test_drift_by_another_hand_is_seen() -> None:
    """`kubectl edit` takes the field over: it is then no longer ours, and must be applied again."""
    live = yaml.safe_load(yaml.safe_dump(LIVE))
    live["spec"]["replicas"] = 9
    del live["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:replicas"]
    assert not matches(WANTED, live)


def test_the_status_is_compared_with_its_own_managed_fields() -> None:
    status = {"metadata": {"name": "a"}, "status": {"url": "u"}}
    assert matches(status, LIVE, "status")
    assert not matches({**status, "status": {"url": "v"}}, LIVE, "status")


def test_an_object_that_was_never_applied_never_matches() -> None:
    assert not matches(WANTED, {**LIVE, "metadata": {"name": "a"}})
