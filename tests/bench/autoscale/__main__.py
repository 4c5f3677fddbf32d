"""The autoscaling policy against others and an oracle, on a service in virtual time."""

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.autoscale import costs, plots, scalers, traces
from bench.autoscale.contest import (
    ATTAINMENT,
    CHANGES,
    HEADER,
    HOURS,
    ORACLE,
    OURS,
    Game,
    Result,
    compete,
    row,
    verdict,
)
from bench.autoscale.simulate import SCRAPE, WARM_UP, WINDOW
from bench.bls.report import markdown, write_section

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
console = Console(width=160 if not sys.stdout.isatty() else None)
DRAWN = (ORACLE, OURS, "HPA on concurrency, 80%")
ALL = list(traces.TRACES)
# The policy's constants were chosen on seeds 1 to 5.
SEEDS = [6, 7, 8, 9, 10]


@app.callback()
def main() -> None:
    """Benchmark of the autoscaling policy."""


@app.command()
def compare(
    trace: Annotated[list[str], typer.Option(help=f"{', '.join(ALL)}; several times. All by default.")] = ALL,
    cold_start: Annotated[float, typer.Option(help="Seconds until a new replica serves.")] = 180.0,
    seed: Annotated[list[int], typer.Option(help="Of arrivals, lengths and routing; several times.")] = SEEDS,
    write: Annotated[Path | None, typer.Option(help="The document whose section this command writes.")] = None,
    processes: Annotated[int, typer.Option(help="Runs at a time.")] = 2,
) -> None:
    """Attainment, replica hours and changes of each policy; with --write also pictures next to the document."""
    for name in trace:
        if name not in traces.TRACES:
            raise typer.BadParameter(f"--trace {name}: write {', '.join(ALL)}")
        chosen, results, drawn = traces.TRACES[name](), list[Result](), {}
        with ProcessPoolExecutor(processes) as executor:
            for result, first in compete([Game(name, each, cold_start) for each in seed], executor):
                results.append(result)
                console.print(f"{chosen.name}: {' | '.join(row(result, results[0]))}")
                if result.name in DRAWN:
                    drawn[result.name] = first.replicas
        text = _table(chosen, results, seed)
        if write:
            picture = write.parent / f"{write.stem}-{name}.svg"
            plots.draw(picture, chosen, drawn)
            write_section(write, "Method", _about(cold_start))
            write_section(write, f"Trace: {chosen.name}", f"{text}\n![{chosen.name}]({picture.name})\n")
            console.print(f"written to {write} and {picture}")
        console.print(text)


def _table(trace: traces.Trace, results: Sequence[Result], seeds: Sequence[int]) -> str:
    table = markdown(HEADER, [row(result, results[0]) for result in results])
    missed = verdict(results, steady=trace.name == "diurnal")
    goals = f"Missed: {'; '.join(missed)}." if missed else "All goals are kept."
    of = f"Medians of seeds {', '.join(map(str, seeds))}." if len(seeds) > 1 else f"Seed {seeds[0]}."
    return f"{trace.about} {of}\n\n{table}\n{goals}\n"


def _about(cold_start: float) -> str:
    draft, target = costs.PAIR.draft, costs.PAIR.target
    return f"""Written by `python -m bench.autoscale compare --write docs/reference/benchmarks/autoscaling.md`.

- **Simulated**: the real policy and the HPA's own algorithm. Pods are read every {SCRAPE:g} s over {WINDOW:g} s;
  scaling down is stabilized for 240 s.
- **Replicas** have {costs.PLACES} places. A step of the target takes {target.fixed:g} ms and
  {target.per_sequence:g} ms a sequence and token, a step of the draft {draft.fixed:g} ms and
  {draft.per_sequence:g} ms a sequence. A new replica serves after {cold_start:g} s. Each request goes to
  the less loaded of two replicas.
- **Objectives**: first token within {scalers.TTFT:g} s, {scalers.ITL * 1e3:g} ms between tokens on average. The first
  {WARM_UP / 60:g} minutes do not count.
- **Seeds**: the policy's constants were chosen on seeds 1 to 5. The figures use other seeds.

Goals: {ATTAINMENT:.0%} of the requests within the objectives wherever the oracle reaches that; at most {HOURS:.2f} of
its replica hours; at most {CHANGES:g} changes an hour over the day; and no simple policy is better (as good with
fewer hours, or better with no more hours).

| policy | what it knows |
| --- | --- |
| oracle | the whole trace: starts replicas a cold start before they are needed, with a reserve chosen in hindsight |
| oracle of the present | true rates, acceptance and costs, but not the future |
| constant replicas | the fewest that keep the objectives, found in hindsight |
| Tandem | what its pods report; with the adaptive draft length, or with the fixed one in its name |
| all others | their own signal; they use the adaptive draft length, too |

With a *queue timeout* replicas refuse requests that waited that long. A refused request counts as late, and its
client does not retry.
"""


if __name__ == "__main__":
    app()
