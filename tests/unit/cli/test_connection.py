"""The commands as kubectl's users know commands: options of the connection, completion, pipes, Ctrl-C, colours."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest
import typer
from typer.testing import CliRunner

from support.commands import names
from tandem.cli import app

REPOSITORY = Path(__file__).parents[3]
OPTIONS = ["--context=c", "--kubeconfig=k", "--as=jane", "--as-group=a", "--as-group=b"]
COMMANDS = [
    ["status", "llama"],
    ["status", "-A"],
    ["top"],
    ["generate", "llama", "-p", "x"],
    ["bench", "llama", "--prompts", str(REPOSITORY / "examples/prompts.jsonl")],
    ["chat", "llama", "hello"],
    ["conformance", "llama"],
    ["cache", "prune"],
    ["doctor"],
    ["logs", "llama"],
    ["logs", "llama", "-f"],
    ["events", "llama"],
    ["apply", "-f", str(REPOSITORY / "examples/quickstart.yaml")],
    ["diff", "-f", str(REPOSITORY / "examples/quickstart.yaml")],
]
"""Each that asks a cluster."""
LOCAL = {
    *("version", "completion", "crd", "conditions", "render", "validate", "import", "chart"),
    *("operator run", "metrics run"),
    "ui",  # becomes kubectl, this process too: test_ui.py
}
FORBIDDEN = "Error from server (Forbidden): jane may not"


class Kubectl:
    """A `kubectl` in PATH that notes its words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def script(self, text: str) -> None:
        path = self.folder / "kubectl"
        path.write_text(f'#!/bin/bash\ncd {self.folder}; echo "$@" >> calls\n{text}\n', encoding="utf-8")
        path.chmod(0o755)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()

    def start(self, *words: str, stdout: IO[str] | int = subprocess.PIPE, **changes: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "operator"), **changes}
        return subprocess.Popen(
            [sys.executable, "-m", "tandem", *words],
            env=environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    fake = Kubectl(tmp_path / "bin")
    fake.script(f"echo '{FORBIDDEN}' >&2; exit 1")
    monkeypatch.setenv("PATH", str(fake.folder), prepend=":")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return fake


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_kubectl_gets_the_options_of_the_connection(kubectl: Kubectl, command: list[str], place: str) -> None:
    words = [*OPTIONS, *command] if place == "before" else [*command, *OPTIONS]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, FORBIDDEN in done.stderr) == (2 if command[0] == "diff" else 1, True), done.output
    assert all(call.split()[: len(OPTIONS)] == OPTIONS for call in kubectl.calls()), kubectl.calls()


def test_each_command_asks_a_cluster_or_is_local() -> None:
    every = {name.removeprefix("tandem ") for name in names(typer.main.get_group(app))}
    asking = {name for words in COMMANDS for name in (words[0], " ".join(words[:2]))}
    assert every - asking - LOCAL == set(), "write it into COMMANDS, or LOCAL"


def test_the_option_after_the_command_wins(kubectl: Kubectl) -> None:
    CliRunner().invoke(app, ["--context", "one", "-n", "team-a", "top", "--context", "two", "-n", "team-b"])
    (call,) = kubectl.calls()
    assert call.split()[:3] == ["--context=one", "--namespace=team-a", "--context=two"]
    assert call.rindex("--namespace team-b") > call.index("--namespace=team-a")


@pytest.mark.parametrize("command", ["operator", "metrics"])
def test_the_programs_of_a_cluster_take_no_connection(command: str) -> None:
    done = CliRunner().invoke(app, ["--context", "prod", command, "run"])
    assert done.exit_code == 2
    assert "current context of $KUBECONFIG" in " ".join(done.stderr.replace("│", "").split())


def test_no_option_outlives_its_command(kubectl: Kubectl) -> None:
    for words in (["--as=jane", "top"], ["top"]):
        CliRunner().invoke(app, words)
    assert [call.startswith("--as=jane") for call in kubectl.calls()] == [True, False]


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("command", [[], ["status"], ["operator", "run"]], ids=str)
def test_help(command: list[str], option: str) -> None:
    done = CliRunner().invoke(app, [*command, option])
    assert (done.exit_code, "Usage:" in done.stdout) == (0, True)


def test_the_plugin_is_named_as_kubectls_users_call_it() -> None:
    code = "import sys; sys.argv = ['kubectl-tandem', 'status', '-h']; from tandem.cli.plugin import plugin; plugin()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert "Usage: kubectl tandem status" in done.stdout


def completed(*words: str) -> list[str]:
    code = f"import sys; sys.argv = ['x', *{list(words)!r}]; from tandem.cli.plugin import complete; complete()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    return done.stdout.split()


def test_kubectl_completes_commands_options_and_services(kubectl: Kubectl) -> None:
    kubectl.script("echo speculativeinferenceservices.serving.tandem.dev/llama; echo x/mistral")
    assert completed("cac") == ["cache", ":0"]
    assert "--watch" in completed("top", "--")
    assert completed("--context", "c", "status", "-n", "team-a", "ll") == ["llama", ":0"]
    (call,) = kubectl.calls()
    assert call.startswith("--context=c --namespace=team-a get ")


def test_a_cluster_that_does_not_answer_completes_nothing(kubectl: Kubectl) -> None:
    assert completed("status", "") == [":0"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_given_what_they_source(shell: str) -> None:
    code = f"from tandem.cli import app; app(['completion', {shell!r}], prog_name='tandem')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert f"_TANDEM_COMPLETE=complete_{shell}" in done.stdout


SERVICE = {
    "metadata": {"name": "llama", "namespace": "team-a", "generation": 1},
    "spec": {
        "runtime": {"mode": "BLS", "profile": "reference"},
        "target": {"model": {"uri": "file:///target"}},
        "speculation": {"decodingType": "None"},
    },
}


def test_a_closed_pipe_ends_a_command_without_a_trace(kubectl: Kubectl) -> None:
    many = [{**SERVICE, "metadata": {**SERVICE["metadata"], "name": f"llama-{i}"}} for i in range(400)]
    (kubectl.folder / "list.json").write_text(json.dumps({"items": many}), encoding="utf-8")
    kubectl.script("cat list.json")
    for words in (["status"], ["status", "-o", "json"], ["status", "-o", "yaml"]):
        with kubectl.start(*words) as process:
            assert process.stdout
            assert process.stderr
            process.stdout.read(1)
            process.stdout.close()
            assert process.stderr.read() == "", words
            assert process.wait(120) in (1, 3), "what it was about to end with, or a pipe's"


QUICKSTART = str(REPOSITORY / "examples/quickstart.yaml")
BENCH = ["bench", "llama", "--prompts", str(REPOSITORY / "examples/prompts.jsonl")]


@pytest.mark.parametrize(
    "words",
    [
        ["crd"],
        ["conditions"],
        ["--help"],
        ["--version"],
        ["render", "-f", QUICKSTART],
        ["completion", "bash"],
        ["status"],
    ],
    ids=" ".join,
)
def test_a_full_disk_is_one_line(kubectl: Kubectl, words: list[str]) -> None:
    kubectl.script("echo '{\"items\": []}'")
    with Path("/dev/full").open("w") as full, kubectl.start(*words, stdout=full) as process:
        _, error = process.communicate(timeout=240)
    lines = [line for line in error.splitlines() if not line.startswith("warning: ")]
    assert (process.returncode, lines) == (1, ["error: cannot write the output: No space left on device"])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["validate", "-f", "a" * 300], 1, "File name too long"),
        (["validate", "-f", "/dev/null/a"], 1, "cannot read /dev/null/a: Not a directory"),
        ([*BENCH, "--json", "/no/folder/a.json"], 2, "there is no folder /no/folder"),
        ([*BENCH, "--plot", "/no/folder/a.svg"], 2, "there is no folder /no/folder"),
        (["conformance", "llama", "--report", "/no/folder/a.json"], 2, "there is no folder /no/folder"),
    ],
    ids=["a long name", "no folder", "JSON", "plot", "report"],
)
def test_a_file_that_cannot_be_used_is_named(kubectl: Kubectl, words: list[str], code: int, message: str) -> None:
    with kubectl.start(*words, COLUMNS="400") as process:
        out, error = process.communicate(timeout=240)
    assert (process.returncode, out, message in error, "Traceback" in error) == (code, "", True, False), error
    assert not (kubectl.folder / "calls").exists(), "it is found before anything is measured"


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "status": {"containerStatuses": [{"name": "triton", "state": {"running": {}}}]},
}


@pytest.mark.parametrize("follow", [[], ["-f"]], ids=["once", "followed"])
def test_a_closed_pipe_ends_logs_without_a_trace(kubectl: Kubectl, follow: list[str]) -> None:
    (kubectl.folder / "list.json").write_text(json.dumps({"items": [POD]}), encoding="utf-8")
    kubectl.script('[ "$1" = logs ] && { yes | head -n 50000; exec sleep 600; }; cat list.json')
    with kubectl.start("logs", "llama", *follow) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait(120)) == ("", 1)


def test_ctrl_c_ends_a_command_without_a_trace(kubectl: Kubectl) -> None:
    kubectl.script("touch asked; exec sleep 600")
    process = kubectl.start("status", "llama")
    deadline = time.monotonic() + 240
    while not (kubectl.folder / "asked").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=240)
    assert (process.returncode, out, error) == (130, "", "")


@pytest.mark.parametrize(("asked", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)], ids=["colours", "none"])
def test_no_color(kubectl: Kubectl, asked: dict[str, str], coloured: bool) -> None:
    (kubectl.folder / "one.json").write_text(json.dumps({"items": [], **SERVICE}), encoding="utf-8")
    kubectl.script("cat one.json")
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"PYTHONPATH": str(REPOSITORY / "operator"), "FORCE_COLOR": "1", "TERM": "xterm-256color", **asked}
    done = subprocess.run(
        [sys.executable, "-m", "tandem", "status", "llama"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "has not acted" in done.stdout
    assert ("\x1b[33m" in done.stdout) is coloured
