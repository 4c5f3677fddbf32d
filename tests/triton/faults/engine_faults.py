"""Makes the reference engine fail as TensorRT-LLM's engines do, from a moment on that a test chooses. Test-only.

No image has this module: a test puts it, and `zz_engine_faults.pth` beside it, into the site-packages of the Python
that runs Triton's models (a pod mounts both files there from a ConfigMap). From then on the reference engine looks
before each step whether there is a file `<folder>/<model>`, for example `/tmp/engine-faults/tensorrt_llm`, and does
what its first word says:

| word | what the engine does |
|---|---|
| `fails` | every request fails at once with a CUDA error, as after one; the model stays loaded, Triton ready |
| `hangs` | no request is ever answered, none can be stopped |
| `row` | requests whose prompt holds the character § fail, by themselves; others work |
| `accepts` | a verification keeps its first draft token, whether or not the model would have chosen it: wrong text |

The folder is `/tmp/engine-faults`, or what the variable ENGINE_FAULTS names. Removing the file ends the fault. A
file that is older than the model's process is ignored: the container that starts again is well, though the file is
in a volume that outlives it.
"""

import itertools
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

FAILS, HANGS, ROW, ACCEPTS = "fails", "hangs", "row", "accepts"
CUDA_ERROR = (
    "[TensorRT-LLM][ERROR] CUDA runtime error in cudaStreamSynchronize(mStream): an illegal memory access was "
    "encountered (/src/tensorrt_llm/cpp/tensorrt_llm/runtime/cudaStream.h:88)"
)
POISON_TEXT, POISON = "§", (127, 101)
"""A character, and its tokens in the pair's vocabulary."""
STUB = "triton_python_backend_stub"


def model_of_this_process() -> str:
    """Name of the Triton model that this process runs; "" where it runs none."""
    words = Path("/proc/self/cmdline").read_bytes().decode(errors="replace").split("\0")
    if not words[0].endswith(STUB):
        return ""
    return next((Path(word).parts[-3] for word in words if word.endswith("/1/model.py")), "")


def install(model: str, folder: Path) -> None:
    """Patch the reference engine in this process."""
    import reference_engine  # sets up OpenBLAS: before anything that loads numpy
    from reference_engine.choice import Pick
    from reference_engine.scheduler import Scheduler
    from reference_engine.sequence import Sequence

    assert reference_engine
    faults, step, take = _Faults(folder / model), Scheduler.step, Sequence.take

    def faulty(scheduler: Scheduler) -> None:
        fault = faults.now()
        if fault == FAILS:
            scheduler.fail_all(CUDA_ERROR)
        elif fault == HANGS:
            time.sleep(0.05)
        else:
            if fault == ROW:
                _fail_poisoned(scheduler)
            step(scheduler)

    def trusting(sequence: Sequence, pick: Pick) -> None:
        if sequence.drafted and faults.now() == ACCEPTS:
            proposed = int(sequence.tokens[sequence.length])
            take(sequence, lambda row: pick(row) if row else replace(pick(row), token=proposed))
        else:
            take(sequence, pick)

    setattr(Scheduler, "step", faulty)  # noqa: B010 - mypy lets nobody assign a method
    setattr(Sequence, "take", trusting)  # noqa: B010


class _Faults:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._begun = time.time()

    def now(self) -> str:
        """The fault that is asked for; "" where none is."""
        try:
            if self._file.stat().st_mtime < self._begun:
                return ""
            return (self._file.read_text().split() or [""])[0]
        except OSError:
            return ""


def _fail_poisoned(scheduler: Any) -> None:
    from reference_engine.request import Finish

    sequences = [*scheduler._running, *scheduler._waiting]
    for sequence in sequences:
        ids = sequence.request.input_ids.tolist()
        if POISON in itertools.pairwise(ids):
            sequence.finish = Finish.ERROR
            sequence.flush(CUDA_ERROR)
            scheduler._free(sequence)
    scheduler._running = [each for each in scheduler._running if not each.finish]
    well = [each for each in scheduler._waiting if not each.finish]
    scheduler._waiting.clear()
    scheduler._waiting.extend(well)


if name := model_of_this_process():
    install(name, Path(os.environ.get("ENGINE_FAULTS", "/tmp/engine-faults")))
