"""`tandem render` is for editors and GitOps pipelines, which run it often: it loads what it needs, and no more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli import app

REPOSITORY = Path(__file__).parents[3]
LARGEST = REPOSITORY / "examples/bls-draft-target-fast-logits.yaml"
RENDER = f"""
import resource, sys
from tandem.cli import app
app(["render", "-f", {str(LARGEST)!r}], standalone_mode=False)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sorted({{name.partition(".")[0] for name in sys.modules}}), file=sys.stderr)
"""
# Clients and servers of the other commands, and the interactive shell that comes with the CEL library.
NOT_NEEDED = {
    *("aiohttp", "cryptography", "grpc", "kopf", "kubernetes", "numpy", "prometheus_client", "tritonclient"),
    *("prompt_toolkit", "pygments", "rich"),
}


def test_render_takes_less_than_a_second_and_loads_no_client() -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "operator")}
    done = subprocess.run(
        [sys.executable, "-c", RENDER], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert "kind: Deployment" in done.stdout
    seconds, *modules = done.stderr.split()
    assert NOT_NEEDED.isdisjoint(modules), sorted(NOT_NEEDED & set(modules))
    # CPU time, about half of this on the machine that it was written on: a busy machine makes no test fail.
    assert float(seconds) < 1


@pytest.mark.parametrize("command", ["operator", "metrics"])
@pytest.mark.parametrize("option", [("--log-level", "loud"), ("--log-format", "xml"), ("--bind", "0.0.0.0:80800")])
def test_wrong_options_are_refused_before_anything_is_started(command: str, option: tuple[str, str]) -> None:
    found = CliRunner().invoke(app, [command, "run", *option])
    assert (found.exit_code, found.stdout) == (2, "")
    assert option[0] in found.stderr
