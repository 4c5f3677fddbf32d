"""vLLM called directly, from outside of its process: it plays windows as `measure.Bench` does through Triton."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bench.gpu.served import load
from bench.gpu.served.load import Chunk, Window
from bench.gpu.served.prompts import Prompt
from bench.gpu.served.ways import SAMPLING, Case

PROGRAM = Path(__file__).with_name("direct.py")


class Direct:
    """A running `direct.py`: `plans` go in, `records` come out."""

    def __init__(self, plans: IO[str], records: IO[str]) -> None:
        self._plans, self._records = plans, records

    def run(self, case: Case, prompts: Sequence[Prompt], window: Window) -> dict[str, Any]:
        """A window's figures. Raises RuntimeError: it ended."""
        sent = load.requests(prompts, window)
        plan = {
            "streams": window.streams,
            "warm_up": window.warm_up,
            "seconds": window.seconds,
            "requests": [(each.prompt.ids, sampling(case, each)) for each in sent],
        }
        print(json.dumps(plan), file=self._plans, flush=True)
        record = json.loads(self.line())
        return load.figures(chunks(record), record["begin"], record["end"])

    def line(self) -> str:
        """Its next one. Raises RuntimeError: it ended."""
        text = self._records.readline()
        if not text:
            raise RuntimeError("AsyncLLM called directly has ended: its own message is above")
        return text


def sampling(case: Case, sent: load.Sent) -> dict[str, Any]:
    """Fields of vLLM's SamplingParams: what Tandem makes of the same request."""
    drawn: dict[str, Any] = {**SAMPLING, "seed": sent.seed} if case.sampled else {"temperature": 0.0}
    return {**drawn, "max_tokens": sent.tokens}


def chunks(record: dict[str, Any]) -> list[Chunk]:
    """All tokens of a record."""
    found = []
    for answer in record["answers"]:
        since, first = answer["sent"], True
        for at, tokens in answer["chunks"]:
            if tokens:
                found.append(Chunk(since, at, tokens, first))
                since, first = at, False
    return found


@contextmanager
def direct(python: Path, arguments: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[Direct]:
    """Run vLLM with these arguments in a process of its own, until it is left."""
    here, there = os.pipe()
    with (
        os.fdopen(here) as records,
        subprocess.Popen(
            [python, PROGRAM, str(there)],
            stdin=subprocess.PIPE,
            text=True,
            pass_fds=[there],
            env={**os.environ, **variables},
        ) as process,
    ):
        os.close(there)
        assert process.stdin
        print(json.dumps(arguments), file=process.stdin, flush=True)
        made = Direct(process.stdin, records)
        made.line()
        yield made
