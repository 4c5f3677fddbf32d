"""The control APIs need the key of this server."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from support.serving.pod import serve, started
from tandem_serving.boot.control import CONTROL, KEY_FILE, SCRIPT, restrict

OPTIONS = ("http-restricted-api", "grpc-restricted-protocol")


def test_control_apis_need_a_key_that_is_in_no_log(revision: Path) -> None:
    """New at each start, and for the container's own user alone."""
    path, keys = revision.parent / "models" / KEY_FILE, []
    for _ in range(2):
        process = serve(revision)
        assert process.stdout is not None
        log, arguments = process.stdout.readline() + process.stdout.readline(), started(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=240)
        keys.append(path.read_text())
        group = f"shared-memory,model-repository,trace,logging:tandem-control-key={keys[-1]}"
        assert "starting: " in log
        assert keys[-1] not in log
        assert all(f"--{option}={group}" in arguments for option in OPTIONS)
        assert path.stat().st_mode & 0o777 == 0o600
    assert keys[0] != keys[1]
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)


# What trtllm-llmapi-launch does with its arguments: it writes them to the log, and starts them as words.
LAUNCHER = """#!/bin/bash
set -ex
task="${@:1}"
$task
"""


@pytest.mark.parametrize("between", [[], ["trtllm-llmapi-launch"]], ids=["ranks of a pod", "of a group"])
def test_below_mpirun_the_first_server_alone_gets_the_key(between: list[str], tmp_path: Path) -> None:
    """Neither the arguments of mpirun have it, which go to all pods of a group, nor what is logged."""
    for name, text in {
        "mpirun": '#!/bin/sh\nshift 2\nexec "$@"\n',
        "trtllm-llmapi-launch": LAUNCHER,
        "tritonserver": '#!/bin/sh\nprintf "%s\\n" "$@" > "${0%/*}/arguments"\n',
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    server, models = str(tmp_path / "tritonserver"), tmp_path / "models"
    models.mkdir()
    launchers = [str(tmp_path / "mpirun"), "-n", "1", *(str(tmp_path / name) for name in between)]
    further = [] if between else [":", "-n", "2", server, "--b"]
    found = restrict([*launchers, server, "--a", *further], models)
    key = (models / KEY_FILE).read_text()
    assert found == [*launchers, str(models / SCRIPT), "--a", *further]
    done = subprocess.run(found[: len(launchers) + 2], capture_output=True, text=True, check=True)
    assert key not in done.stdout + done.stderr
    group = f"{','.join(CONTROL)}:tandem-control-key={key}"
    assert (tmp_path / "arguments").read_text().splitlines() == ["--a", *(f"--{o}={group}" for o in OPTIONS)]
    assert (models / SCRIPT).stat().st_mode & 0o777 == 0o700
