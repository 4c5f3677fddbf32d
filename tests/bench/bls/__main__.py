"""The speculative BLS on the real Triton server with stub engines that cost what a cost model says.

Every figure stands beside the ideal: the same requests in virtual time, without overhead, under the best
schedule. Needs the Python environment of `make venv`, and Go.
"""

import itertools
import os
import shlex
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from bench.bls import report, simulate, stub
from bench.bls.client import Load
from bench.bls.in_flight import NO_LIMITS, Costs, Pair, StepLimits
from bench.bls.measure import ROLES, Bench, Profile, Setup, serve
from bench.bls.prompts import Kind
from bench.bls.report import Run

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
console = Console(width=200 if not sys.stdout.isatty() else None)

Streams = Annotated[list[int], typer.Option(help="Requests at once; may be given several times.")]
Seconds = Annotated[float, typer.Option(help="Length of a run's measured window.")]
WarmUp = Annotated[float, typer.Option(help="Seconds of load before the window.")]
Repeats = Annotated[int, typer.Option(help="Runs behind each median.")]
DeviceOption = Annotated[str, typer.Option(help="separate or shared: do the engines' steps exclude each other?")]
DraftLen = Annotated[int, typer.Option(help="num_draft_tokens of the requests; 0: the target alone; -1: not sent.")]
Acceptance = Annotated[float, typer.Option(help="Probability that a draft token is accepted, at each position.")]
PerToken = Annotated[
    bool, typer.Option(help="A verification costs v1 for each of the k + 1 tokens, not each sequence.")
]
Parameter = Annotated[list[str], typer.Option(help="key=value of the BLS's config.pbtxt; several times.")]
Batch = Annotated[
    int | None, typer.Option(help="Rows that an engine takes into a step, and a call: its max_batch_size.", min=1)
]
Tokens = Annotated[
    int | None, typer.Option(help="Tokens that an engine takes into a step: its max_num_tokens.", min=1)
]
Chunked = Annotated[
    list[str], typer.Option(help="draft or target: the engine's contexts may enter in pieces; several times.")
]
Prompt = Annotated[int, typer.Option(help="Tokens of a prompt, about; 0: 64 to 128.")]
Sampled = Annotated[bool, typer.Option("--sampled", help="Requests are sampled: see also --parameter mix_seed=true.")]
Mixed = Annotated[bool, typer.Option("--mixed", help="Every other request sends one more optional tensor.")]
Rounds = Annotated[bool, typer.Option("--rounds/--no-rounds", help="The server makes whole rounds by itself.")]
Write = Annotated[Path | None, typer.Option(help="The document whose section this command writes.")]
Prefill = Annotated[tuple[float, float], typer.Option(help="ms a prefilled token costs: draft, target.")]
PREFILL = (0.0007, 0.0035)
ALONE_LOADS = [1, 16, 64]
LOADS, ADAPTIVE_LOADS = [1, 4, 16, 32, 64], [1, 8, 32, 64]
ACCEPTANCES, FIXED = [0.3, 0.6, 0.8, 0.95], [0, 1, 2, 4, 6, 8]
PHASES = [0.8, 0.8, 0.1, 0.1, 0.8, 0.8, 0.8]
NO_PARAMETERS: list[str] = []
ADAPTIVE = (0, 1, 2, 3, 4, 6, 8)
"""Draft lengths of which the best one is the ideal where the service chooses."""


@app.command()
def point(
    streams: Annotated[int, typer.Option(help="Requests at once.")] = 1,
    seconds: Seconds = 5.0,
    warm_up: WarmUp = 2.0,
    draft_len: Annotated[int, typer.Option(help="num_draft_tokens; 0: the target alone; -1: not sent.")] = 4,
    acceptance: Acceptance = 0.8,
    device: DeviceOption = "separate",
    per_token: PerToken = False,
    prefill: Prefill = PREFILL,
    parameter: Parameter = NO_PARAMETERS,
    batch: Batch = None,
    max_num_tokens: Tokens = None,
    chunked: Chunked = NO_PARAMETERS,
    prompt: Prompt = 0,
    sampled: Sampled = False,
    mixed: Mixed = False,
    rounds: Rounds = True,
    seed: Annotated[int, typer.Option(help="Other seeds send other prompts.")] = 1,
    profile: Annotated[
        Path | None, typer.Option(help="Write a profile of the BLS here, by py-spy: *.svg, *.txt.")
    ] = None,
) -> None:
    """One load, once, with everything that was measured."""
    limits = _limits(batch, max_num_tokens, chunked)
    setup = _setup(device, per_token, prefill, (acceptance,), parameter, rounds, limits)
    k, kind = None if draft_len < 0 else draft_len, Kind(length=prompt)
    load = Load(streams, seconds, warm_up, seed, draft_len=k, kind=kind, sampled=sampled, mixed=mixed)
    console.print("starting Triton")
    with serve(setup) as bench:
        console.print(f"measuring for {warm_up + seconds:g} s")
        measured = bench.run(load, Profile(profile, seconds) if profile else None)
    console.print(asdict(measured))
    work = report.workload(load, setup.acceptance)
    for outcome in (
        *simulate.schedules(setup.pair, work, draft_len if draft_len > 0 else 4),
        simulate.target_only(setup.pair, work),
    ):
        console.print(
            f"{outcome.schedule:16} {outcome.speed:6.0f} tokens/s  TTFT {outcome.ttft * 1e3:5.1f} ms"
            f"  round {outcome.round_time * 1e3:5.1f} ms  measured / this {measured.speed / outcome.speed:.3f}"
        )
    _warn(measured.result.wrong)


@app.command()
def stages(
    streams: Streams = LOADS,
    seconds: Seconds = 20.0,
    warm_up: WarmUp = 3.0,
    draft_len: DraftLen = 4,
    acceptance: Acceptance = 0.8,
    device: DeviceOption = "separate",
    write: Write = None,
) -> None:
    """Where the BLS's CPU time goes: by stage, at each load, from the clocks of its threads."""
    setup = replace(_setup(device, False, PREFILL, (acceptance,), []), model="clocked_bls")
    with serve(setup) as bench, Progress(console=console) as progress:
        loads = [Load(count, seconds, warm_up, 1, draft_len=draft_len) for count in streams]
        points = [bench.run(load) for load in progress.track(loads, description="measuring")]
    header = ["µs a step and sequence", *(f"{count} {what}" for count in streams for what in ("streams", "a call"))]
    table = report.markdown(header, report.stage_rows(points))
    _publish(write, _title("CPU time by stage", setup, device), _about(setup) + table)
    _warn(sum(each.result.wrong for each in points))


@app.command()
def table(
    streams: Streams = LOADS,
    seconds: Seconds = 6.0,
    warm_up: WarmUp = 3.0,
    repeats: Repeats = 3,
    draft_len: DraftLen = 4,
    acceptance: Acceptance = 0.8,
    device: DeviceOption = "separate",
    per_token: PerToken = False,
    prefill: Prefill = PREFILL,
    parameter: Parameter = NO_PARAMETERS,
    batch: Batch = None,
    max_num_tokens: Tokens = None,
    chunked: Chunked = NO_PARAMETERS,
    prompt: Prompt = 0,
    sampled: Sampled = False,
    mixed: Mixed = False,
    rounds: Rounds = True,
    write: Write = None,
) -> None:
    """Loads from one stream to many: with speculation, without, and the target called directly, beside the ideal."""
    limits = _limits(batch, max_num_tokens, chunked)
    setup = _setup(device, per_token, prefill, (acceptance,), parameter, rounds, limits)
    k, kind = None if draft_len < 0 else draft_len, Kind(length=prompt)
    [target] = [stub.behind(name) for name, role in ROLES.items() if role == "target"]
    others = ("", target)
    rows, wrong = [], 0
    console.print("starting Triton")
    with serve(setup) as bench:
        for count in streams:
            first = Load(count, seconds, warm_up, draft_len=k, kind=kind, sampled=sampled, mixed=mixed)
            loads = [replace(first, seed=seed) for seed in range(1, repeats + 1)]
            turns = [
                each for load in loads for each in (load, *(replace(load, draft_len=0, engine=e) for e in others))
            ]
            runs = list(_runs(bench, setup, turns, f"{count} streams"))
            wrong += sum(run.point.result.wrong for run in runs)
            rows.append(report.row(setup.pair, runs[0::3], runs[1::3], runs[2::3]))
            console.print(report.markdown(report.HEADER, rows[-1:]))
    _publish(write, _title("Speed", setup, device), _about(setup) + report.markdown(report.HEADER, rows))
    _warn(wrong)


@app.command()
def floor(
    streams: Streams = LOADS,
    seconds: Seconds = 6.0,
    warm_up: WarmUp = 3.0,
    repeats: Repeats = 3,
    draft_len: DraftLen = 4,
    acceptance: Acceptance = 0.8,
    device: DeviceOption = "separate",
    write: Write = None,
) -> None:
    """The BLS beside the least that a Python model could do on this server (bare_bls), in turns."""
    setup = _setup(device, False, PREFILL, (acceptance,), [])
    bare = replace(setup, model="bare_bls")
    rows, wrong = [], 0
    console.print("starting Triton, twice")
    with serve(setup) as own, serve(bare) as least:
        for count in streams:
            runs: dict[bool, list[Run]] = {False: [], True: []}
            for seed in range(1, repeats + 1):
                load = Load(count, seconds, warm_up, seed, draft_len=draft_len)
                runs[False] += _runs(own, setup, [load], f"{count} streams")
                runs[True] += _runs(least, bare, [load], f"{count} streams, bare")
            wrong += sum(run.point.result.wrong for each in runs.values() for run in each)
            rows.append(report.floor_row(runs[False], runs[True]))
            console.print(report.markdown(report.FLOOR_HEADER, rows[-1:]))
    title = _title("The least that a model in Python costs", setup, device)
    _publish(write, title, _about(setup) + report.markdown(report.FLOOR_HEADER, rows))
    _warn(wrong)


@app.command()
def direct(
    streams: Streams = ALONE_LOADS,
    seconds: Seconds = 6.0,
    warm_up: WarmUp = 3.0,
    repeats: Repeats = 3,
    prefill: Prefill = PREFILL,
    write: Write = None,
) -> None:
    """The target alone through the BLS, and its engine called directly, by the same clients in turns."""
    setup = _setup("separate", False, prefill, (0.8,), [])
    rows, wrong = [], 0
    console.print("starting Triton")
    with serve(setup) as bench:
        for count in streams:
            loads = [Load(count, seconds, warm_up, seed, draft_len=0) for seed in range(1, repeats + 1)]
            pairs = [(load, replace(load, engine="tensorrt_llm_engine", streaming=True)) for load in loads]
            runs = list(
                _runs(bench, setup, [load for pair in pairs for load in pair], f"{count} streams", ideal=False)
            )
            wrong += sum(run.point.result.wrong for run in runs)
            rows.append(report.direct_row(runs[0::2], runs[1::2]))
            console.print(report.markdown(report.DIRECT_HEADER, rows[-1:]))
    title = _title("The target alone", setup, "separate")
    _publish(write, title, _about(setup) + report.markdown(report.DIRECT_HEADER, rows))
    _warn(wrong)


@app.command()
def adaptive(
    streams: Streams = ADAPTIVE_LOADS,
    acceptance: Annotated[list[float], typer.Option(help="Several times.")] = ACCEPTANCES,
    fixed: Annotated[list[int], typer.Option(help="Fixed draft lengths to compare with.")] = FIXED,
    seconds: Seconds = 5.0,
    warm_up: WarmUp = 3.0,
    repeats: Repeats = 1,
    device: DeviceOption = "separate",
    per_token: PerToken = False,
    prefill: Prefill = PREFILL,
    parameter: Parameter = NO_PARAMETERS,
    batch: Batch = None,
    write: Write = None,
) -> None:
    """The adaptive draft length against fixed ones, for each acceptance and load.

    The adaptive BLS is a fresh one at each point: it has learnt nothing from another acceptance or load. All lengths
    take turns, and of each one's runs the median counts.
    """
    rows, alphas = [], tuple(acceptance)
    limits = _limits(batch, None, [])
    fresh, standing = (
        _setup(device, per_token, prefill, alphas, [f"adaptive={v}", *parameter], limits=limits)
        for v in ("true", "false")
    )
    console.print("starting Triton")
    with serve(standing) as bench:
        for group, count in itertools.product(range(len(alphas)), streams):
            first = Load(count, seconds, warm_up, kind=Kind(group, len(alphas)))
            loads = [replace(first, seed=seed) for seed in range(repeats)]
            name = f"acceptance {alphas[group]:g}, {count} streams, draft length"
            speeds: dict[int | None, list[float]] = {k: [] for k in (*fixed, None)}
            with serve(fresh) as own:
                # In turns: what else goes on on the machine changes within minutes.
                for load, (k, measured) in itertools.product(loads, speeds.items()):
                    given = load if k is None else replace(load, draft_len=k)
                    where = (own, fresh) if k is None else (bench, standing)
                    measured.append(_speed(*where, given, f"{name} {'adaptive' if k is None else k}"))
            medians = {k: statistics.median(each) for k, each in speeds.items()}
            rows.append([f"{alphas[group]:g}", str(count), *report.adaptive_cells(medians)])
            console.print(report.markdown(report.adaptive_header(fixed), rows[-1:]))
    text = _about(fresh) + report.markdown(report.adaptive_header(fixed), rows)
    _publish(write, _title("Adaptive draft length", fresh, device), text)


@app.command()
def phases(
    acceptance: Annotated[list[float], typer.Option(help="One after the other; several times.")] = PHASES,
    streams: Annotated[int, typer.Option(help="Requests at once.")] = 8,
    seconds: Seconds = 5.0,
    device: DeviceOption = "separate",
    per_token: PerToken = False,
    prefill: Prefill = PREFILL,
) -> None:
    """An adaptive BLS whose traffic's acceptance changes: tokens/s in each phase, in windows with no warm-up."""
    alphas = tuple(sorted(set(acceptance)))
    setup = _setup(device, per_token, prefill, alphas, ["adaptive=true"])
    console.print("starting Triton")
    with serve(setup) as bench:
        for seed, alpha in enumerate(acceptance):
            load = Load(streams, seconds, 0.0, seed, kind=Kind(alphas.index(alpha), len(alphas)))
            speed = _speed(bench, setup, load, f"acceptance {alpha:g}")
            console.print(f"acceptance {alpha:<5g} {speed:6.0f} tokens/s")


def _speed(bench: Bench, setup: Setup, load: Load, name: str) -> float:
    """Tokens/s."""
    [run] = _runs(bench, setup, [load], name, ideal=False)
    _warn(run.point.result.wrong)
    return run.point.speed


def _runs(bench: Bench, setup: Setup, loads: list[Load], name: str, ideal: bool = True) -> Iterator[Run]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for load in progress.track(loads, description=name):
            measured = bench.run(load)
            work = report.workload(load, setup.acceptance)
            lengths = ADAPTIVE if load.draft_len is None else [load.draft_len]
            best = simulate.ideal(setup.pair, work, lengths) if ideal else simulate.Outcome("", 0, 0, 0)
            yield Run(load, measured, best)


def _setup(
    device: str,
    per_token: bool,
    prefill: tuple[float, float],
    alphas: tuple[float, ...],
    parameters: list[str],
    rounds: bool = True,
    limits: tuple[StepLimits, StepLimits] = (NO_LIMITS, NO_LIMITS),
) -> Setup:
    if device not in ("separate", "shared"):
        raise typer.BadParameter(f"--device {device}: write separate or shared")
    pair = Pair(
        Costs(2.0, per_prefill_token=prefill[0]),
        Costs(12.0, per_prefill_token=prefill[1]),
        shared=device == "shared",
        draft_limits=limits[0],
        target_limits=limits[1],
    )
    options = [text.split("=", 1) for text in parameters]
    if any(len(each) != 2 for each in options):
        raise typer.BadParameter("--parameter: write key=value")
    # Where nothing is said the stub takes many rows in a call.
    standard = {"max_engine_rows": str(limits[1].rows or 64), "separate_devices": str(device == "separate").lower()}
    given = standard | dict(options)
    costs = pair.verification_per_token() if per_token else pair
    return Setup(costs, alphas, parameters=tuple(given.items()), rounds=rounds)


def _limits(batch: int | None, tokens: int | None, chunked: list[str]) -> tuple[StepLimits, StepLimits]:
    """The draft engine's, and the target's."""
    if not set(chunked) <= {"draft", "target"}:
        raise typer.BadParameter(f"--chunked {' '.join(chunked)}: write draft or target")
    draft, target = (StepLimits(batch, tokens, role in chunked) for role in ("draft", "target"))
    return draft, target


def _title(what: str, setup: Setup, device: str) -> str:
    return f"{what}, engines on {device} devices"


def _about(setup: Setup) -> str:
    command = shlex.join(["python", "-m", "bench.bls", *sys.argv[1:]])
    cores = len(os.sched_getaffinity(0))
    return (
        f"`{command}` on {cores} cores, which carry Triton, the BLS, both stub engines and the client.\n\n"
        f"A step of the draft takes {_costs(setup.pair.draft)}; of the target {_costs(setup.pair.target)}.\n"
        "Requests of 128 tokens of output in a closed loop; every output was compared with the target's.\n"
        "Speeds are tokens/s; *engine alone*: the target called directly, one call a request.\n"
        "µs are a process's CPU time for each step of a sequence;\n"
        "BLS MB is its largest resident set; TTFT (mean) stands beside prefill and one round of the cost model.\n\n"
    )


def _costs(costs: Costs) -> str:
    text = (
        f"{costs.fixed:g} ms, {costs.per_sequence:g} ms a sequence, {costs.per_prefill_token:g} ms a prefilled token"
    )
    return text + (f", {costs.per_draft_token:g} ms a draft token" if costs.per_draft_token else "")


def _publish(write: Path | None, title: str, text: str) -> None:
    console.print(text)
    if write:
        report.write_section(write, title, text)
        console.print(f"written to {write}: section {title!r}")


def _warn(wrong: int) -> None:
    """Output that is not the target's makes all figures worthless."""
    if wrong:
        console.print(f"[red]{wrong} requests got other tokens than the target's[/red]")
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
