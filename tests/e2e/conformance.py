"""`tandem conformance` by a service's name, and as the chart runs it: a Job in the cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from builder.build import Built
from cluster import binaries

from .conftest import REPOSITORY, Site, load_demo, wait_for

SYSTEM = "tandem-system"
FEW = ["--max-tokens", "8", "--case", "exact-4", "--case", "sampled", "--case", "cancels"]
"""Arguments for few cases, which take seconds."""


def by_name(site: Site, report: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run it as a user does, through kubectl; its exit code, and its report."""
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
