"""The process of a rank that follows: `python -m reference_engine.torch_backend.follower RANK FD`; see `ranks`."""

import json
import logging
import os
import sys
from multiprocessing.connection import Connection

import reference_engine  # noqa: F401 - sets up OpenBLAS: before numpy

# isort: split
from reference_engine.config import CheckpointError
from reference_engine.torch_backend import loading, ranks
from reference_engine.torch_backend.layout import Shape
from reference_engine.torch_backend.model import TorchModel
from reference_engine.torch_backend.ranks import Job, Order


def main() -> None:
    """Load a share of the model and follow the leader until it closes the link."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    rank, link = int(sys.argv[1]), Connection(int(sys.argv[2]))
    ranks.end_with(os.getppid())
    try:
        job = Job(**json.loads(link.recv_bytes()))
        try:
            share = loading.load_share(job, rank)
        except CheckpointError as error:
            link.send_bytes(json.dumps(str(error)).encode())
            return
        link.send_bytes(json.dumps("").encode())
        ranks.join(job, rank)
        follow(link, loading.build_share(share, ranks.Follower(len(job.gpus))))
    except (EOFError, OSError):  # the leader has closed
        os._exit(0)


def follow(link: Connection, model: TorchModel) -> None:
    """Do what the leader orders. Raises EOFError when it has closed."""
    while True:
        order, numbers, array = ranks.read(link.recv_bytes())
        if order is Order.PASS:
            model.give(Shape(*numbers), lambda given, array=array: given.copy(array))
        elif order is Order.PREPARE:
            model.prepare(Shape(*numbers))
        else:
            model.copy_kv(*numbers[:3])


if __name__ == "__main__":
    main()
