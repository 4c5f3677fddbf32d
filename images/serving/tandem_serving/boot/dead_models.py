"""A server whose model has died is ended, so that its container starts again.

Triton does not start the process of a decoupled model again: its streams wait for ever, new ones are refused, what it
counted stays on the metrics page (requests_running too), and until 26.03 Triton calls itself ready all the while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tandem_serving.boot import processes
from tandem_serving.errors import Survived

STUB = "triton_python_backend_stub"[:15]
"""Name of the Python backend's processes, one for each instance of a model, as the kernel keeps it."""
LOOK_SECONDS = 2.0


def dead_models(server: int) -> set[int]:
    """Processes of models, below the process `server`, that have ended and that Triton has not replaced."""
    return {pid for pid in processes.family(server) if processes.name(pid) == STUB and processes.dead(pid)}


def watch(server: int, stopping: threading.Event, end: Callable[[], None]) -> None:
    """Look until the server is `stopping`, or a model is dead at two looks in a row: then `end` it."""
    before: set[int] = set()
    unseen = Survived("it is not known whether a model is dead")
    while not stopping.wait(LOOK_SECONDS):
        with unseen:
            now = dead_models(server)
            if before & now:
                print(f"a model has died (process {min(before & now)}), see above: ending the server", flush=True)
                end()
                return
            before = now
