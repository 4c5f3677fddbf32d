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

from .conformance_job import FEW
from .conftest import REPOSITORY, Site

EXAMPLE = REPOSITORY / "examples/reference-llmapi.yaml"


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
