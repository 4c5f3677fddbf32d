"""Triton's control APIs answer only those who hold the key of this server, which is new at each start.

Without it whoever reaches the pod could register shared memory (also the Python backend's own), list, load and unload
models, and change what is logged and traced. Health, metadata, inference, model configurations and statistics stay
open: clients and load generators ask for them.

Every Triton that takes `--grpc-max-connection-age` (24.01), which Tandem always passes, has both options (23.12).
https://github.com/triton-inference-server/server/blob/main/docs/customization_guide/inference_protocols.md#limit-endpoint-access-beta
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

from tandem_serving.boot import ranks

CONTROL = ("shared-memory", "model-repository", "trace", "logging")
"""What is restricted, by Triton's names."""
HEADER = "tandem-control-key"
"""HTTP header with the key; over gRPC Triton puts `triton-grpc-protocol-` before it."""
KEY_FILE, SCRIPT = ".control-key", ".tritonserver"
"""Files in the model repository, of which Triton reads folders alone: the key, and what starts the server with it."""


def restrict(command: Sequence[str], models: Path, more: Sequence[str] = ()) -> list[str]:
    """Make a key, write it where `kubectl exec` reads it and no other user does; the command that asks for it.

    `more`: further options of the server that opens ports.

    Below mpirun a script adds it to the first rank's server, the only one that opens ports: mpirun's arguments go to
    all pods of a group, and trtllm-llmapi-launch writes them to the log.
    """
    key = secrets.token_hex(32)
    _write(models / KEY_FILE, key, 0o600)
    group = f"{','.join(CONTROL)}:{HEADER}={key}"
    options = [*more, f"--http-restricted-api={group}", f"--grpc-restricted-protocol={group}"]
    if not ranks.is_launcher(command[0]):
        return [*command, *options]
    place = next(index for index, word in enumerate(command) if Path(word).name == ranks.SERVER)
    _write(models / SCRIPT, f'#!/bin/sh\nexec {shlex.quote(command[place])} "$@" {shlex.join(options)}\n', 0o700)
    return [*command[:place], str(models / SCRIPT), *command[place + 1 :]]


def _write(path: Path, text: str, mode: int) -> None:
    path.unlink(missing_ok=True)  # of an earlier start of this container
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
