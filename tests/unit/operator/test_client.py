"""Where a command acts that was not told a namespace."""

from pathlib import Path

import pytest

from tandem.cluster.client import current_namespace

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


@pytest.mark.parametrize(
    ("context", "namespace", "why"),
    [(", namespace: serving", "serving", "the context's"), ("", "default", "the context names none")],
)
def test_a_persons_namespace_is_their_contexts(
    context: str, namespace: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG % context)
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    assert current_namespace(tmp_path / "none") == namespace, why


def test_a_pods_namespace_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("tandem-system")
    assert current_namespace(tmp_path / "namespace") == "tandem-system"
