"""Pod templates, patches, and what the API server makes of them."""

from typing import Any

import yaml

_TEXT = """
- reason: a variable of another name is added, before those that were there
  base: {spec: {containers: [{name: triton, env: [{name: A, value: "1"}]}]}}
  patch: {spec: {containers: [{name: triton, env: [{name: B, value: "2"}]}]}}
  wanted: {spec: {containers: [{name: triton, env: [{name: B, value: "2"}, {name: A, value: "1"}]}]}}
- reason: items of the same key are merged in place, field by field
  base: {spec: {containers: [{name: triton, env: [{name: A, value: a}, {name: B, value: b}, {name: C}]}]}}
  patch: {spec: {containers: [{name: triton, env: [{name: D}, {name: B, value: c}, {name: E}]}]}}
  wanted:
    spec:
      containers:
        - name: triton
          env:
            - {name: D}
            - {name: A, value: a}
            - {name: B, value: c}
            - {name: E}
            - {name: C}
- reason: mounts are merged by path, not by volume
  base: {spec: {containers: [{name: triton, volumeMounts: [{name: tmp, mountPath: /tmp}]}]}}
  patch: {spec: {containers: [{name: triton, volumeMounts: [{name: tmp, mountPath: /more}]}]}}
  wanted:
    spec: {containers: [{name: triton, volumeMounts: [{name: tmp, mountPath: /more}, {name: tmp, mountPath: /tmp}]}]}
- reason: amounts of resources are merged by name
  base: {spec: {containers: [{name: triton, resources: {limits: {nvidia.com/gpu: "1"}, requests: {cpu: 500m}}}]}}
  patch: {spec: {containers: [{name: triton, resources: {limits: {memory: 8Gi}, requests: {cpu: "2"}}}]}}
  wanted:
    spec:
      containers:
        - {name: triton, resources: {limits: {nvidia.com/gpu: "1", memory: 8Gi}, requests: {cpu: "2"}}}
- reason: null removes a field
  base: {spec: {containers: [{name: triton, resources: {limits: {memory: 2Gi, cpu: "1"}}}]}}
  patch: {spec: {containers: [{name: triton, resources: {limits: {memory: null, ephemeral-storage: null}}}]}}
  wanted: {spec: {containers: [{name: triton, resources: {limits: {cpu: "1"}}}]}}
- reason: lists without a merge key are replaced
  base: {spec: {containers: [{name: triton, envFrom: [{configMapRef: {name: a}}]}]}}
  patch: {spec: {containers: [{name: triton, envFrom: [{secretRef: {name: b}}]}]}}
  wanted: {spec: {containers: [{name: triton, envFrom: [{secretRef: {name: b}}]}]}}
- reason: volumes and pull secrets are merged by name
  base: {spec: {volumes: [{name: tmp, emptyDir: {}}], imagePullSecrets: [{name: one}]}}
  patch: {spec: {volumes: [{name: own, secret: {secretName: s}}], imagePullSecrets: [{name: two}, {name: one}]}}
  wanted:
    spec:
      volumes: [{name: own, secret: {secretName: s}}, {name: tmp, emptyDir: {}}]
      imagePullSecrets: [{name: two}, {name: one}]
- reason: labels and annotations are merged
  base: {metadata: {labels: {a: "1"}}}
  patch: {metadata: {labels: {b: "2"}, annotations: {c: "3"}}}
  wanted: {metadata: {labels: {a: "1", b: "2"}, annotations: {c: "3"}}}
- reason: what was not there is taken without its nulls
  base: {spec: {containers: [{name: triton}]}}
  patch: {spec: {containers: [{name: triton, resources: {limits: {cpu: "1", memory: null}}}]}}
  wanted: {spec: {containers: [{name: triton, resources: {limits: {cpu: "1"}}}]}}
"""

ROWS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    (row["base"], row["patch"], row["wanted"], row["reason"]) for row in yaml.safe_load(_TEXT)
]
