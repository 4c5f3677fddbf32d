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
from collections.abc import Sequence
from pathlib import Path

CONTROL = ("shared-memory", "model-repository", "trace", "logging")
"""What is restricted, by Triton's names."""
HEADER = "tandem-control-key"
"""HTTP header with the key; over gRPC Triton puts `triton-grpc-protocol-` before it."""
KEY_FILE = ".control-key"
"""Name of the key's file in the model repository, of which Triton reads folders alone."""


def write_key(models: Path) -> str:
    """Make a key, and write it where `kubectl exec` can read it, and no other user."""
    key = secrets.token_hex(32)
    path = models / KEY_FILE
    path.unlink(missing_ok=True)  # of an earlier start of this container
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(key)
    return key


def restricted(command: Sequence[str], key: str) -> list[str]:
    """The command with the options. Of an mpirun's servers the first gets them: no other opens a port."""
    group = f"{','.join(CONTROL)}:{HEADER}={key}"
    options = [f"--http-restricted-api={group}", f"--grpc-restricted-protocol={group}"]
    end = command.index(":") if ":" in command else len(command)
    return [*command[:end], *options, *command[end:]]
