"""`tandem render` is for editors and GitOps pipelines, which run it often: it loads what it needs, and no more."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from support import images
from tandem.cli import app
from tandem.cli.options import user_errors
from tandem.errors import SettingsError

REPOSITORY = Path(__file__).parents[3]
LARGEST = REPOSITORY / "examples/bls-draft-target-fast-logits.yaml"
RENDER = f"""
from tandem.cli import app
app(["render", "-f", {str(LARGEST)!r}], standalone_mode=False)
"""
LIBRARIES = "import jinja2, pydantic, typer, yaml"
"""What it cannot do without: how long that takes says how fast the machine is now."""
USED = """
import resource, sys
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""
# Clients and servers of the other commands, and the interactive shell that comes with the CEL library.
NOT_NEEDED = {
    *("aiohttp", "cryptography", "grpc", "kopf", "kubernetes", "numpy", "prometheus_client", "tritonclient"),
    *("prompt_toolkit", "pygments", "rich"),
}


def run(code: str) -> tuple[str, float, list[str]]:
    """What it prints, the CPU time that it takes, and the modules that it loads."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "operator")}
    done = subprocess.run(
        [sys.executable, "-c", code + USED], env=environment, capture_output=True, text=True, check=True, timeout=240
    )
    seconds, *modules = done.stderr.splitlines()[-1].split()  # after warnings
    return done.stdout, float(seconds), modules


def test_render_takes_little_time_and_loads_no_client() -> None:
    printed, first, modules = run(RENDER)
    assert "kind: Deployment" in printed
    assert NOT_NEEDED.isdisjoint(modules), sorted(NOT_NEEDED & set(modules))
    render = min(first, *(run(RENDER)[1] for _ in range(2)))
    libraries = min(run(LIBRARIES)[1] for _ in range(3))
    assert render < 10 * libraries, "half of this where it was written: a few tenths of a second"


def test_the_metrics_server_loads_neither_the_operators_event_source_nor_templates() -> None:
    _, _, modules = run("import tandem.metrics_server.process\n")
    assert {"kopf", "jinja2"}.isdisjoint(modules)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""


@pytest.mark.parametrize("command", ["operator", "metrics"])
def test_an_address_that_is_taken_is_said_to_be(command: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG, encoding="utf-8")
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(images.SETTINGS), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "operator"),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
    }
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        run = [sys.executable, "-m", "tandem", command, "run", "--log-format=text", "--bind", address]
        run += ["--settings", str(settings)]
        done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1
    assert f"error: cannot listen at {address}: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


async def _end(error: Exception) -> None:
    raise error


async def _among_others(error: Exception) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(_end(error))


def test_what_one_of_several_tasks_tells_is_said_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), user_errors():
        asyncio.run(_among_others(SettingsError("cannot listen at 0.0.0.0:8443: Address already in use")))
    assert capsys.readouterr().err == "error: cannot listen at 0.0.0.0:8443: Address already in use\n"


def test_a_closed_pipe_in_one_of_several_tasks_is_the_commands() -> None:
    """So that it ends without a trace, as `Commands` and typer do it."""
    with pytest.raises(BrokenPipeError), user_errors():
        asyncio.run(_among_others(BrokenPipeError()))


def test_a_defect_of_one_of_several_tasks_keeps_its_trace() -> None:
    with pytest.raises(ExceptionGroup), user_errors():
        asyncio.run(_among_others(ZeroDivisionError()))


@pytest.mark.parametrize("command", ["operator", "metrics"])
@pytest.mark.parametrize("option", [("--log-level", "loud"), ("--log-format", "xml"), ("--bind", "0.0.0.0:80800")])
def test_wrong_options_are_refused_before_anything_is_started(command: str, option: tuple[str, str]) -> None:
    found = CliRunner().invoke(app, [command, "run", *option])
    assert (found.exit_code, found.stdout) == (2, "")
    assert option[0] in found.stderr
