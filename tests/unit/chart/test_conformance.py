"""The chart's Job of `tandem conformance`: none unless asked for, and few rights."""

from typing import Any

import pytest
import typer

from tandem.cli.main import app

from .conftest import NAMESPACED, Helm, kinds, only

NAME = "tandem-conformance"
ASKED: dict[str, Any] = {
    "conformance": {"service": "llama", "namespace": "team-a", "against": "plain", "minutes": 2.5}
}


def test_there_is_none_by_default(helm: Helm) -> None:
    assert [o for o in helm.template() if o["metadata"]["name"] == NAME] == []
    assert "Job" not in kinds(helm.template())


def test_the_command_takes_what_the_job_gives_it(helm: Helm) -> None:
    job = only(helm.template(ASKED), "Job", NAME)
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["tandem", "conformance"]
    assert container["args"] == ["llama", "--namespace=team-a", "--against=plain", "--minutes=2.5", "--report=-"]
    command = typer.main.get_command(app).commands["conformance"]  # type: ignore[attr-defined]
    given = command.make_context("conformance", list(container["args"])).params
    assert (given["name"], given["namespace"], given["against"], given["minutes"]) == (
        "llama",
        "team-a",
        "plain",
        2.5,
    )


@pytest.mark.parametrize(
    ("values", "cluster_wide"), [({}, True), (NAMESPACED, False)], ids=["cluster-wide", "namespaced"]
)
def test_it_may_read_and_no_more(helm: Helm, values: dict[str, Any], cluster_wide: bool) -> None:
    objects = [o for o in helm.template({**values, **ASKED}) if o["metadata"]["name"] == NAME]
    assert {rule["resources"][0]: rule["verbs"] for o in objects for rule in o.get("rules", [])} == {
        "speculativeinferenceservices": ["get"],
        "pods": ["list"],
        **({"nodes": ["get"]} if cluster_wide else {}),
    }
    assert only(objects, "Role")["metadata"]["namespace"] == "team-a"
    bindings = [o for o in objects if o["kind"].endswith("Binding")]
    assert len(bindings) == 1 + cluster_wide
    for binding in bindings:
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "tandem-system"}]


def test_its_pod_keeps_to_the_strictest_standard(helm: Helm) -> None:
    spec = only(helm.template(ASKED), "Job", NAME)["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
