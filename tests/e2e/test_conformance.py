"""`tandem conformance` as a user runs it, by a service's name: through kubectl, on a real kubelet, in both modes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tandem
from builder.build import Built
from cluster import binaries

from .conftest import REPOSITORY, Site, load_demo, wait_for

EXAMPLE = REPOSITORY / "examples/reference-llmapi.yaml"
SYSTEM = "tandem-system"
FEW = ["--max-tokens", "8", "--case", "exact-4", "--case", "sampled", "--case", "cancels"]


@pytest.fixture(scope="module")
def llmapi(site: Site) -> Iterator[str]:
    raw = yaml.safe_load(EXAMPLE.read_text()) | {"metadata": {"name": "conform-llmapi"}}
    site.run("apply", "-f", "-", stdin=json.dumps(raw))
    site.wait_condition("conform-llmapi", "Ready", "True")
    yield "conform-llmapi"
    site.run("delete", "sis", "conform-llmapi")


def conformance(site: Site, report: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    kubectl = site.cluster.kubectl
    environment = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)}
    environment["PATH"] = f"{kubectl.binary.parent}:{environment['PATH']}"
    command = [sys.executable, "-m", "tandem", "conformance", *arguments, *FEW, "--report", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert report.exists(), done.stderr
    print(done.stdout, done.stderr)
    return done.returncode, json.loads(report.read_text())


def in_cluster(site: Site, images: list[Built]) -> tuple[bool, dict[str, Any]]:
    """Run the chart's Job on the quickstart, with few cases; whether it succeeded, and its report."""
    values = {**load_demo().helm_values(images), "conformance": {"service": "quickstart", "namespace": "default"}}
    command = [str(binaries.ensure(["helm"], print)["helm"]), "template", "tandem", str(REPOSITORY / "charts/tandem")]
    command += ["-n", SYSTEM, "--show-only=templates/conformance.yaml", "--values=-"]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=True)
    objects = list(yaml.safe_load_all(done.stdout))
    job = next(each for each in objects if each["kind"] == "Job")
    job["spec"]["template"]["spec"]["containers"][0]["args"] += FEW
    site.run("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    name = str(job["metadata"]["name"])

    def ended() -> dict[str, int]:
        status = (site.cluster.reader.get("job", name, SYSTEM) or {}).get("status", {})
        return {key: status[key] for key in ("succeeded", "failed") if status.get(key)}

    succeeded = "succeeded" in wait_for("the Job to end", ended)
    log = site.run("-n", SYSTEM, "logs", f"job/{name}")
    return succeeded, json.loads(log[log.index("\n{\n") :])


def test_mode_bls(site: Site, tmp_path: Path) -> None:
    code, report = conformance(site, tmp_path / "report", "quickstart", "--minutes", "0.01")
    assert {case["case"]: case["outcome"] for case in report["cases"]} == dict.fromkeys(
        ["exact-4", "sampled", "cancels", "soak", "health"], "verified"
    )
    assert code == 0
    assert report["tandem"] == tandem.__version__
    assert report["service"]["profile"] == "reference"
    assert report["versions"]["triton"].startswith("2.")
    assert report["pods"]["pods"] == 1
    (image,) = report["pods"]["images"]
    assert "@sha256:" in image
    assert report["node"]["kubelet"].startswith("v1.")
    cases = {case["case"]: case for case in report["cases"]}
    assert "their sequences are gone" in cases["cancels"]["detail"], "the pods' metrics were read"
    assert cases["health"]["detail"] == "of restarts and counters of faults"
    assert cases["health"]["figures"]["nodeMemoryMost"] > 0
    assert "quickstart" not in json.dumps(report)


def test_mode_llmapi(site: Site, llmapi: str, tmp_path: Path) -> None:
    code, report = conformance(site, tmp_path / "report", llmapi, "--against", "quickstart")
    assert {case["outcome"] for case in report["cases"]} == {"verified"}, report["cases"]
    assert code == 0
    assert report["service"]["mode"] == "LLMAPI"
    assert "as the target alone" in report["cases"][0]["detail"]
