"""A process of AsyncLLM called directly, on no path of the tests' packages: it plays a plan for each line of its
standard input, as `bench/bls/load` does for Triton. Its first line is AsyncEngineArgs' fields.

It writes to the file descriptor `sys.argv[1]`, since vLLM logs to the usual ones: a line when it is ready, and a
record for each plan.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from typing import Any, TextIO


class Player:
    """One window of a closed loop. `plan`: `streams`, `warm_up`, `seconds`, and `requests`: ids, and fields of
    SamplingParams."""

    def __init__(self, engine: Any, plan: dict[str, Any], numbers: "itertools.count[int]") -> None:
        self._engine, self._plan, self._numbers = engine, plan, numbers
        self._requests = iter(plan["requests"])
        self._start = time.perf_counter()
        self._over = False
        self._answers: list[dict[str, Any]] = []

    async def play(self) -> dict[str, Any]:
        """Its record: when the window was, when each request was sent, and when its tokens came."""
        streams = [asyncio.create_task(self._stream()) for _ in range(self._plan["streams"])]
        await asyncio.sleep(self._plan["warm_up"])
        begin = self._now()
        await asyncio.sleep(self._plan["seconds"])
        end, self._over = self._now(), True
        await asyncio.gather(*streams)
        return {"begin": begin, "end": end, "answers": self._answers}

    def _now(self) -> float:
        return time.perf_counter() - self._start

    async def _stream(self) -> None:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        while not self._over:
            ids, sampling = next(self._requests)
            chunks = list[tuple[float, int]]()
            self._answers.append({"sent": self._now(), "chunks": chunks})
            params = SamplingParams(**sampling, detokenize=False, output_kind=RequestOutputKind.DELTA)
            number = f"direct-{next(self._numbers)}"
            async for output in self._engine.generate({"prompt_token_ids": ids}, params, number):
                chunks.append((self._now(), sum(len(each.token_ids) for each in output.outputs)))


async def serve(plans: TextIO, records: TextIO) -> None:
    """Load vLLM, and play."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**json.loads(plans.readline())))
    print("ready", file=records, flush=True)
    numbers = itertools.count()
    while line := await asyncio.to_thread(plans.readline):
        record = await Player(engine, json.loads(line), numbers).play()
        print(json.dumps(record), file=records, flush=True)
    engine.shutdown()


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "w") as pipe:
        asyncio.run(serve(sys.stdin, pipe))
