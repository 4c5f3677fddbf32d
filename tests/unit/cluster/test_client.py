"""Which kubeconfigs the servers take, and which answers are for people."""

import json
from pathlib import Path

import pytest

from tandem.cluster.client import Api, _error
from tandem.errors import AlreadyExists, Refused, SettingsError, Transient

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: mine
clusters: [{name: c, cluster: {server: "https://nowhere:1"}}]
users: [{name: u, user: {token: t}}]
contexts:
- name: other
  context: {cluster: c, user: u, namespace: not-this}
- name: mine
  context: {cluster: c, user: u%s}
"""


BROKEN = [
    (b"", "an empty file, as a shell leaves it whose command failed"),
    (b"[]", "a list"),
    (b"contexts: [", "no YAML"),
    (b"\xff\xfe", "no UTF-8"),
    (
        (KUBECONFIG % "").replace("context: {cluster: c,", "context: {cluster: gone,").encode(),
        "a cluster that is not there",
    ),
    (
        (KUBECONFIG % "").replace('nowhere:1"', 'nowhere:1", certificate-authority-data: bm9uZQ==').encode(),
        "an authority that is no certificate",
    ),
    *(
        ((KUBECONFIG % "").replace("token: t", f"token: t, {field}").encode(), f"one that acts as another: {field}")
        for field in ("as: bob", "as-uid: u", "as-groups: [g]", "as-user-extra: {a: [b]}")
    ),
]


@pytest.mark.parametrize(("kubeconfig", "why"), BROKEN, ids=[row[1] for row in BROKEN])
async def test_a_kubeconfig_that_cannot_be_used_is_said_to_be_one(
    kubeconfig: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubeconfig").write_bytes(kubeconfig)
    monkeypatch.setattr(
        "kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig")
    )
    with pytest.raises(SettingsError, match="no kubeconfig that can be used") as told:
        await Api.connect()
    assert "\n" not in str(told.value), why


ANSWERS = [
    (409, "the object has been modified", Transient),
    (429, "too many requests", Transient),
    (500, "etcdserver: leader changed", Transient),
    (503, "the server is currently unable to handle the request", Transient),
    (422, "spec.replicas: Invalid value", Refused),
    (403, "exceeded quota: pods", Refused),
    # As k8s.io/apiserver 1.36 answers a server-side apply.
    (500, "failed to create typed patch object (n/s; apps/v1, Kind=Deployment): .spec.x: duplicate entries", Refused),
    (500, "failed to convert new object (n/s) to proper version: quantities must match the regular", Refused),
    (500, 'Internal error occurred: failed calling webhook "w": no endpoints available', Refused),
    (504, 'failed calling webhook "w": context deadline exceeded', Transient),
]


@pytest.mark.parametrize(("status", "message", "kind"), ANSWERS, ids=[f"{row[0]} {row[1][:30]}" for row in ANSWERS])
def test_what_no_later_try_helps_is_for_people(status: int, message: str, kind: type[Exception]) -> None:
    assert type(_error("PATCH", "/p", status, json.dumps({"message": message}).encode())) is kind


def test_answers_of_others_are_read_as_far_as_they_go() -> None:
    assert type(_error("POST", "/p", 409, b'{"reason": "AlreadyExists", "message": null}')) is AlreadyExists
    assert "502: Bad Gateway" in str(_error("GET", "/p", 502, b"Bad Gateway"))
    assert "502: \ufffd" in str(_error("GET", "/p", 502, b"\xff")), "no text"
