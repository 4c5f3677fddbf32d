"""docs/reference/request-parameters.md, from the table of request parameters. Pure."""

from collections.abc import Iterator

from tandem.api.decoding import Mode
from tandem.engines import KINDS, Engine
from tandem.engines.request_parameters import PARAMETERS, Facts, Outcome

_HEAD = """# Request parameters by engine

Whether a parameter of a request has an effect depends on the engine, its version and the decoding type. Generated
from the tables in `operator/tandem/engines` by `make generate`. Upstream's sources and pull requests were
read on 2026-11-28; on TensorRT-LLM itself nothing of it has run here. `tandem conformance` tries a service.

| outcome | |
|---|---|
| works | passed on, and followed |
| partly | passed on, and followed within the limits that are given below |
| switch | works with a field of `speculative_config`, which Tandem sets |
| refused | the engine drops it, or refuses it: a request with it gets 400, `INVALID_ARGUMENT` by gRPC |

The message of a refusal names the parameter, the engine, its version, the decoding type and what to do. Values that
ask for nothing pass everywhere: penalties 0, `repetition_penalty` 1, `min_p` 0, `min_tokens` 0, `best_of` 1, a `seed`
or `min_p` with greedy decoding, `min_tokens` with `ignore_eos`. OpenAI's API has temperature 1 where none is sent, so
an engine that decodes greedily refuses such a request: send `temperature` 0.
"""
_SWITCHES = """
A switch that `runtime.extraLlmArgs` holds stays as it is there: with `false` the parameters behind it are refused,
and `null` leaves the field out (release candidates before 1.3.0rc27 do not know `enable_penalty`).
"""
_SHORT = {Outcome.IGNORED: Outcome.REFUSED.value}
_TITLES = {Mode.LLMAPI: "Mode LLMAPI", Mode.BLS: "Mode BLS"}


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(part for mode in _TITLES for part in _mode(mode)) + _SWITCHES


def _mode(mode: Mode) -> Iterator[str]:
    table = {title: facts for engine in _engines(mode) for title, facts in engine.parameters.items()}
    shown = {title: facts for title, facts in table.items() if facts.shown}
    yield f"\n## {_TITLES[mode]}\n"
    yield f"| parameter | {' | '.join(shown)} |\n|---{'|---' * len(shown)}|\n"
    for name in PARAMETERS[mode]:
        cells = (_SHORT.get(outcome := facts.entry(name).outcome, outcome.value) for facts in shown.values())
        yield f"| `{name}` | {' | '.join(cells)} |\n"
    yield "\n| engine | when | parameters | what it does | source |\n|---|---|---|---|---|\n"
    for title, facts in table.items():
        yield from _reasons(title, facts)


def _engines(mode: Mode) -> Iterator[type[Engine]]:
    for kind in KINDS.values():
        if mode in kind:
            yield kind[mode]


def _reasons(engine: str, facts: Facts) -> Iterator[str]:
    """Parameters of one reason are one line; the first has when the engine is used."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, entry in facts.entries.items():
        reason = entry.reason.replace("without it", f"without `{facts.switch}`")
        alike.setdefault((reason, entry.source), []).append(f"`{name}`")
    if not alike:
        yield f"| {engine} | {facts.used} | | | |\n"
    for at, ((reason, source), names) in enumerate(alike.items()):
        place = f"[{source.rpartition('/')[2]}]({source})" if source else ""
        yield f"| {'' if at else engine} | {'' if at else facts.used} | {', '.join(names)} | {reason} | {place} |\n"
