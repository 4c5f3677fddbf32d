"""The processes of a model that is split over GPUs: one leads, the others do on theirs what it does on its own.

The leader has the scheduler and chooses the tokens. Over a pair of connected sockets it sends each follower what it
is about to give its GPU (`Order`), and the collectives of the model keep them in step. The ranks are on one machine:
they meet by a file of the leader's, and listen on no address but loopback's.
"""

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from reference_engine.config import CheckpointError

IntArray = npt.NDArray[np.int32]
log = logging.getLogger(__name__)
_MODULE = "reference_engine.torch_backend.follower"
_FIELDS = 4  # numbers of an order, before its array


class Order(IntEnum):
    """What a follower does."""

    PREPARE = 0
    """Capture a `Shape`."""
    PASS = 1
    """A pass of a `Shape`, and its input."""
    COPY_KV = 2
    """Copy keys and values: source, destination, tokens."""


@dataclass(frozen=True)
class Job:
    """What all ranks load: see `loading.load`. They meet by the file `meeting`; rank i's GPU is `gpus[i]`."""

    folder: str
    slots: int
    max_seq_len: int
    max_num_tokens: int
    kv_cache_bytes: int
    gpus: Sequence[int]
    meeting: str = ""


class Alone:
    """A model on one GPU."""

    size = 1
    leads = True

    def order(self, order: Order, numbers: Sequence[int], array: IntArray | None = None) -> None:
        """Nobody is there."""

    def share(self, values: Tensor) -> None:
        """Nobody is there."""


class Follower(Alone):
    """A rank that gets its orders."""

    leads = False

    def __init__(self, size: int) -> None:
        self.size = size

    def share(self, values: Tensor) -> None:
        """Replace values by the leader's."""
        dist.broadcast(values, 0)


class Leader(Alone):
    """Rank 0. Its followers end when it closes, and when its process ends."""

    def __init__(self, job: Job) -> None:
        self.size = len(job.gpus)
        self._folder = tempfile.TemporaryDirectory(prefix="tandem-ranks-")
        self.job = Job(**{**asdict(job), "meeting": str(Path(self._folder.name) / "meeting")})
        self._followers = [_start(self.job, rank) for rank in range(1, self.size)]
        self._closing = False

    def wait(self) -> None:
        """Until all followers have loaded their weights. Raises CheckpointError with what stops one."""
        for rank, (link, process) in enumerate(self._followers, start=1):
            try:
                problem = json.loads(link.recv_bytes())
            except (EOFError, OSError):
                problem = f"its process ended with code {process.wait()}: its log says why"
            if problem:
                raise CheckpointError(f"rank {rank}, on GPU {self.job.gpus[rank]}: {problem}")
        for rank, (_, process) in enumerate(self._followers, start=1):
            threading.Thread(target=self._watch, args=(rank, process), name=f"rank {rank}", daemon=True).start()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        """A GPU waits for a lost rank for ever, and its process cannot be freed but by its end."""
        code = process.wait()
        if not self._closing:
            log.critical("rank %d of the model ended with code %d: this process ends, too", rank, code)
            logging.shutdown()
            os._exit(1)

    def order(self, order: Order, numbers: Sequence[int], array: IntArray | None = None) -> None:
        """Send the followers an order."""
        head = np.zeros(1 + _FIELDS, np.int32)
        head[0], head[1 : 1 + len(numbers)] = order, numbers
        message = head.tobytes() + (b"" if array is None else array.tobytes())
        for link, _ in self._followers:
            link.send_bytes(message)

    def share(self, values: Tensor) -> None:
        """Give all ranks these values."""
        dist.broadcast(values, 0)

    def close(self) -> None:
        """End the followers."""
        self._closing = True
        for link, process in self._followers:
            link.close()
            process.kill()
            process.wait()
        self._folder.cleanup()


def read(message: bytes) -> tuple[Order, list[int], IntArray]:
    """An order, its numbers, its array."""
    values = np.frombuffer(message, np.int32)
    return Order(int(values[0])), values[1 : 1 + _FIELDS].tolist(), values[1 + _FIELDS :]


def _start(job: Job, rank: int) -> tuple[Connection, subprocess.Popen[bytes]]:
    """Start a follower; it imports from where this process does."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [_python(), "-m", _MODULE, str(rank), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        link = Connection(ours.detach())
    link.send_bytes(json.dumps(asdict(job)).encode())
    return link, process


def _python() -> str:
    """The interpreter; where this process is Triton's, which has one in it, that of the same PATH."""
    if Path(sys.executable or "").name.startswith("python"):
        return sys.executable
    return shutil.which("python3") or "python3"


def join(job: Job, rank: int) -> None:
    """Meet the other ranks: waits for them. Leaves the switches of the machine's owner for NCCL as they are."""
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(job.meeting, len(job.gpus))
    on_gpus = torch.cuda.is_available()
    dist.init_process_group(
        "nccl" if on_gpus else "gloo",
        store=store,
        rank=rank,
        world_size=len(job.gpus),
        device_id=torch.device("cuda", job.gpus[rank]) if on_gpus else None,
    )


def end_with(parent: int) -> None:
    """End this process, a thread of which may wait for its GPU for ever, when its parent has ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
