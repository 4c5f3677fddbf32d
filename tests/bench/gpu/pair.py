"""Text and speculation of the trained pair in the shapes of 8B and 1B.

Its text is real, and so is its acceptance; its cost is the large models'. Speculation in `rounds`, where all streams
draft together and are verified together: by nothing but the two schedulers, and by the reference LLM API.
"""

import json
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import tokenizers
import torch

import reference_engine
from bench.gpu import shapes, wide
from reference_engine.backend import Segment
from reference_engine.engine import Engine
from reference_engine.request import Finish, Output, Request
from reference_engine.sampling import SamplingParams
from reference_engine.scheduler import Capacity, Scheduler
from reference_engine.torch_backend import attention, loading
from reference_engine.torch_backend.layout import Shape
from reference_engine.torch_backend.loading import Sizes
from reference_engine.torch_backend.model import TorchModel
from reference_llm.llmapi import batch
from reference_llm.llmapi.drafters import DraftModel
from reference_llm.llmapi.llm_args import SpeculativeConfig
from reference_llm.llmapi.speculation import Speculator

Ids = npt.NDArray[np.int32]
PAIR = Path(reference_engine.__file__).resolve().parents[1] / "pair"
SIZES = Sizes(slots=72, max_seq_len=1024, max_num_tokens=1024)
NEW_TOKENS = 96
ROUNDS = 24
STREAMS = (1, 4, 16, 64)
LENGTHS = (1, 2, 3, 4, 5, 6, 7)
LLM_API_LENGTHS = (2, 4)
LEAST_TEXTS = 8
COMPARED = 10  # prompts
EPSILON = 0.25  # a lead of one logit over another below which rounding of bfloat16 decides
GREEDY = SamplingParams()
SAMPLED = SamplingParams(top_p=0.95, temperature=0.8, seed=7)


@dataclass(frozen=True)
class Fixed:
    """A draft length that stays."""

    length: int

    def draft_len(self, running: int) -> int:
        """The length."""
        return self.length


@dataclass(frozen=True)
class Load:
    """Tokens a second of `streams` at once; `length` 0: the target alone. `accepted`: tokens a pass of the target."""

    form: str
    streams: int
    length: int
    tokens_per_second: float
    accepted: float


def prompts() -> list[Ids]:
    """The pair's own, as tokens."""
    tokenizer = tokenizers.Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
    lines = (PAIR / "prompts.jsonl").read_text().splitlines()
    return [np.array(tokenizer.encode(json.loads(line)["prompt"]).ids, np.int32) for line in lines]


def run() -> dict[str, Any]:
    """The command."""
    per_second = shapes.bandwidth()
    equal = {role: _difference(role, shape) for role, shape in (("target", "8B"), ("draft", "1B"))}
    large = wide.module(PAIR / "target", shapes.CONFIGS["8B"], shapes.random_module)
    stock = _stock_greedy(large, prompts()[:COMPARED])
    target, target_bytes = shapes.load(shapes.CONFIGS["8B"], SIZES, large)
    draft, draft_bytes = shapes.load(
        shapes.CONFIGS["1B"], SIZES, wide.module(PAIR / "draft", shapes.CONFIGS["1B"], shapes.random_module)
    )
    for model in (target, draft):
        started = time.perf_counter()
        model.warm(max(STREAMS), max(LENGTHS))
        print(f"graphs captured in {time.perf_counter() - started:.1f} s", flush=True)
    schedulers = [
        Scheduler(model, Capacity(1024, SIZES.slots, SIZES.max_seq_len), 128256) for model in (target, draft)
    ]
    loads = _alone(schedulers[0]) + _in_rounds(*schedulers)
    loads += _llm_api(schedulers[0], schedulers[1])
    text = _compare(schedulers[0], schedulers[1], stock)
    steps = _steps(target, draft)
    figures = {
        "float32_difference": equal,
        "text": text,
        "bound_ms": [each.weights / per_second * 1e3 for each in (target_bytes, draft_bytes)],
        "steps_ms": steps,
        "loads": [_judged(each, steps, loads) for each in loads],
    }
    print(json.dumps({name: figures[name] for name in ("float32_difference", "text", "bound_ms", "steps_ms")}))
    return figures


def _difference(role: str, shape: str) -> float:
    """The largest difference of logits, in float32, between the large shape and the small model's golden ones."""
    config, golden = shapes.CONFIGS[shape], np.load(PAIR / "golden.npz")
    module = wide.module(PAIR / role, config, lambda each: shapes.random_module(each, torch.float32))
    model = loading.build(module, Sizes(slots=1, max_seq_len=512, max_num_tokens=512), compiled=False)
    differences = []
    for ids, expected in ((golden[f"prompt_{i}"], golden[f"{role}_logits_{i}"]) for i in range(5)):
        computed = model.forward([Segment(0, 0, ids, len(expected))])
        torch.cuda.synchronize()
        logits = computed.values[: len(expected)].cpu().numpy()
        assert (logits.argmax(-1) == expected.argmax(-1)).all(), "another token is the most likely"
        differences.append(float(abs(logits[:, : expected.shape[1]] - expected).max()))
    return max(differences)


@torch.inference_mode()
def _stock_greedy(module: Any, texts: list[Ids]) -> list[list[int]]:
    """transformers' own greedy continuations."""
    module.set_attn_implementation("sdpa")
    made = []
    for ids in texts:
        given = torch.from_numpy(ids.astype(np.int64))[None].cuda()
        out = module.generate(given, max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0)
        made.append(out[0, len(ids) :].tolist())
    module.set_attn_implementation(attention.NAME)
    return made


def _speculator(target: Scheduler, draft: Scheduler, length: int) -> Speculator:
    """To be closed before anything else uses the schedulers."""
    return Speculator(target, DraftModel(draft), cast(SpeculativeConfig, Fixed(length)), max(STREAMS))


def _compare(scheduler: Scheduler, draft: Scheduler, stock: list[list[int]]) -> dict[str, Any]:
    """How far the engine's text, alone and by speculation, is transformers'; the lead where it first is not."""
    texts = prompts()[: len(stock)]
    speculator = _speculator(scheduler, draft, 4)
    drafted = [_generate(speculator, [ids], 64)[0].tokens for ids in texts]
    speculator.close()
    target = Engine(scheduler)
    alone = [_generate(target, [ids], 64)[0].tokens for ids in texts]
    result = {}
    for name, made, expected in (("alone", alone, stock), ("speculation", drafted, alone)):
        leads = [_lead(target, *each) for each in zip(texts, made, expected, strict=True)]
        differing = [lead for lead in leads if lead is not None]
        result[name] = {
            "equal": len(leads) - len(differing),
            "of": len(leads),
            "leads_at_first_differences": differing,
            "within_epsilon": all(lead <= EPSILON for lead in differing),
        }
    target.close()
    return result


def _lead(engine: Engine, ids: Ids, made: list[int], expected: list[int]) -> float | None:
    """One logit's lead over the other where the two texts part; None: they do not."""
    at = next((i for i, (a, b) in enumerate(zip(made, expected, strict=True)) if a != b), None)
    if at is None:
        return None
    text = np.concatenate([ids, np.array(made[:at], np.int32)])
    [output] = _run(engine.submit, [Request(text, 1, logits=True)])
    logits = output[0].logits[0]
    return float(abs(logits[made[at]] - logits[expected[at]]))


def _run(submit: Callable[..., Any], requests: list[Request]) -> list[list[Output]]:
    outputs: list[list[Output]] = [[] for _ in requests]
    ended: queue.Queue[int] = queue.Queue()

    def sink_of(index: int) -> Callable[[Output], None]:
        def sink(output: Output) -> None:
            outputs[index].append(output)
            if output.finish:
                ended.put(index)

        return sink

    for index, request in enumerate(requests):
        submit(request, sink_of(index))
    for _ in requests:
        ended.get(timeout=120)
    assert all(each[-1].finish == Finish.LENGTH for each in outputs), "a request failed"
    return outputs


@dataclass(frozen=True)
class _Text:
    tokens: list[int]
    passes: int


def _generate(runner: Any, texts: list[Ids], count: int) -> list[_Text]:
    outputs = _run(runner.submit, [Request(ids, count, streaming=True) for ids in texts])
    return [
        _Text([t for output in each for t in output.tokens], sum(1 for o in each if o.tokens)) for each in outputs
    ]


def _groups(streams: int) -> list[list[Ids]]:
    own = prompts()
    texts = [own[i % len(own)][i // len(own) :] for i in range(max(streams, LEAST_TEXTS))]
    return [texts[i : i + streams] for i in range(0, len(texts), streams)]


def _alone(target: Scheduler) -> list[Load]:
    """The target alone. Prompts are in the KV cache: what is measured is decoding."""
    loads = []
    for form, sampling in (("alone", GREEDY), ("alone, sampled", SAMPLED)):
        for streams in STREAMS:
            took = 0.0
            for group in _groups(streams):
                batch.run(target, [Request(ids, 2, sampling=sampling) for ids in group])
                started = time.perf_counter()
                batch.run(target, [Request(ids, NEW_TOKENS, sampling=sampling) for ids in group])
                took += time.perf_counter() - started
            loads.append(Load(form, streams, 0, max(streams, LEAST_TEXTS) * NEW_TOKENS / took, 1.0))
            print(loads[-1], flush=True)
    return loads


def _in_rounds(target: Scheduler, draft: Scheduler, *, lengths: Sequence[int] = LENGTHS) -> list[Load]:
    loads = []
    cases = [("rounds", GREEDY, length) for length in lengths] + [("rounds, sampled", SAMPLED, 4)]
    for streams in STREAMS:
        for form, sampling, length in cases:
            took, tokens = 0.0, 0
            for group in _groups(streams):
                texts = list(group)
                _round(target, draft, texts, sampling, length)
                before = sum(map(len, texts))
                started = time.perf_counter()
                for _ in range(ROUNDS):
                    _round(target, draft, texts, sampling, length)
                took += time.perf_counter() - started
                tokens += sum(map(len, texts)) - before
            passes = ROUNDS * max(streams, LEAST_TEXTS)
            loads.append(Load(form, streams, length, tokens / took, tokens / passes))
            print(loads[-1], flush=True)
    return loads


def _round(target: Scheduler, draft: Scheduler, texts: list[Ids], sampling: SamplingParams, length: int) -> None:
    """Draft and verify once; `texts` grow."""
    drafted = batch.run(draft, [Request(ids, length, sampling=sampling) for ids in texts])
    given = [np.array(each.tokens, np.int32) for each in drafted]
    requests = [
        Request(ids, length + 1, draft_ids=tokens, sampling=sampling)
        for ids, tokens in zip(texts, given, strict=True)
    ]
    for index, output in enumerate(batch.run(target, requests)):
        texts[index] = np.concatenate([texts[index], np.array(output.tokens, np.int32)])


def _llm_api(target: Scheduler, draft: Scheduler) -> list[Load]:
    loads = []
    for streams in STREAMS:
        for length in LLM_API_LENGTHS:
            runner = _speculator(target, draft, length)
            made, took = [], 0.0
            for group in _groups(streams):
                _generate(runner, group, 2)
                started = time.perf_counter()
                made += _generate(runner, group, NEW_TOKENS)
                took += time.perf_counter() - started
            runner.close()
            tokens, passes = len(made) * NEW_TOKENS, sum(each.passes for each in made)
            loads.append(Load("LLM API", streams, length, tokens / took, tokens / passes))
            print(loads[-1], flush=True)
    return loads


def _steps(target: TorchModel, draft: TorchModel) -> dict[str, float]:
    """GPU ms of the passes that rounds are made of, at a context of 256, by "role streams tokens"."""
    steps = {}
    for streams in STREAMS:
        for role, model, counts in (("target", target, [1, *(k + 1 for k in LENGTHS)]), ("draft", draft, [1])):
            for count in counts:
                segments = [Segment(slot, 256, np.full(count, 5, np.int32), count) for slot in range(streams)]
                model.forward(segments)
                torch.cuda.synchronize()
                graph = model._runs[Shape.of(segments)].graph
                steps[f"{role} {streams} {count}"] = shapes.seconds(graph.replay, 20) * 1e3
    return steps


def _judged(load: Load, steps: dict[str, float], loads: list[Load]) -> dict[str, Any]:
    """Against the target alone, and against the ideal by measured steps: what a pass of the target takes beyond."""
    sampled = ", sampled" if "sampled" in load.form else ""
    alone = next(each for each in loads if (each.form, each.streams) == ("alone" + sampled, load.streams))
    target = steps[f"target {load.streams} {load.length + 1}"]
    ms = target + load.length * steps[f"draft {load.streams} 1"]
    ideal = load.streams * load.accepted / ms * 1e3
    of_alone, of_ideal = load.tokens_per_second / alone.tokens_per_second, load.tokens_per_second / ideal
    beyond = ms / of_ideal - ms
    print(
        f"{load.form}, {load.streams} streams, k {load.length}: {load.tokens_per_second:.0f} tokens/s,"
        f" {of_alone:.2f} x the target alone, {load.accepted:.2f} tokens a pass, {of_ideal:.2f} of the ideal,"
        f" {beyond:.2f} ms beyond its {ms:.2f}",
        flush=True,
    )
    return {**load.__dict__, "of_alone": of_alone, "of_ideal": of_ideal, "ideal_ms": ms, "beyond_ms": beyond}
