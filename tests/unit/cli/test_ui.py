"""`tandem ui` with a kubectl that writes down what it is asked."""

import os
import subprocess
import sys
from pathlib import Path

KUBECTL = """#!/bin/sh
echo "$@" >> "$0.log"
case "$@" in
  *absent*) echo 'Error from server (NotFound): services "absent" not found' >&2; exit 1;;
  *create*) echo made-token;;
esac
exit 0
"""


def run(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    kubectl = folder / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "tandem", "ui", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    log = folder / "kubectl.log"
    return done, log.read_text().splitlines() if log.exists() else []


def test_it_forwards_a_port_and_prints_the_address(tmp_path: Path) -> None:
    done, asked = run(tmp_path, "--port", "9443")
    assert done.returncode == 0
    assert "https://127.0.0.1:9443/ui/" in done.stderr
    assert done.stdout == "", "without an account there is no token"
    assert asked == [
        "get service tandem-metrics --namespace tandem-system --output=name --request-timeout=15s",
        "port-forward --namespace tandem-system service/tandem-metrics 9443:443",
    ]


def test_no_address_is_printed_of_what_is_not_there(tmp_path: Path) -> None:
    done, asked = run(tmp_path, "--service", "absent")
    assert (done.returncode, done.stdout, len(asked)) == (1, "", 1)
    error = 'error: Error from server (NotFound): services "absent" not found'
    assert done.stderr == f"{error}; -n and --service name the metrics server's\n"


def test_a_token_is_made_for_the_account_that_is_named_and_for_this_server_alone(tmp_path: Path) -> None:
    named = ("--account", "team-a/reader", "-n", "ops", "--service", "t-metrics", "--context", "prod")
    done, asked = run(tmp_path, *named)
    assert done.stdout == "token of team-a/reader: made-token\n"
    assert asked[1:] == [
        "--context=prod create token reader --namespace team-a --audience=metrics.serving.tandem.dev",
        "--context=prod port-forward --namespace ops service/t-metrics 8443:443",
    ]


def test_without_kubectl_it_says_so(tmp_path: Path) -> None:
    env = os.environ | {"PATH": str(tmp_path)}
    command = [sys.executable, "-m", "tandem", "ui"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, "kubectl is not in PATH" in done.stderr) == (1, True)
