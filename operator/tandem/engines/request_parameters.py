"""Which parameters of a request an engine follows, by version and decoding type: `Engine.parameters`. Pure.

Its switches are set in the engine's arguments. Its servers get the parameters that would have no effect, so that they
refuse them by name. The docs' page comes from it (`request_parameters_page`), and `tandem conformance` tries what it
says. It shapes revisions: see docs/contributing.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tandem.api.decoding import Mode
from tandem.api.sampling_parameters import of_mode

SPECULATION = "speculative_config"
SAMPLING = ("temperature", "top_k", "top_p")
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
PARAMETERS = {mode: tuple(parameter.name for parameter in of_mode(mode)) for mode in (Mode.BLS, Mode.LLMAPI)}
"""By mode: those that its models have an input for. OpenAI's and vLLM's names."""


class Outcome(StrEnum):
    """What becomes of a parameter."""

    WORKS = "works"
    PARTLY = "partly"
    """Works within the limits that the reason states; it is passed on."""
    SWITCH = "switch"
    """Works with the engine's switch, which Tandem sets."""
    IGNORED = "ignored"
    """The engine drops it without a word: Tandem refuses it."""
    REFUSED = "refused"
    """The engine refuses it, or fails: Tandem refuses it before."""


@dataclass(frozen=True)
class Entry:
    """What becomes of a parameter in an engine, the subject of `reason`. `source`: where upstream says so."""

    outcome: Outcome
    reason: str = ""
    source: str = ""


@dataclass(frozen=True)
class Facts:
    """What is known of an engine. `used`: when it is so; `entries`: of parameters that do not simply work; `switch`:
    the field of `speculative_config` behind Outcome.SWITCH; `instead`: what to do about parameters without effect,
    `to_draw` about those of SAMPLING; `shown`: as a column
    of the docs' table."""

    used: str
    entries: Mapping[str, Entry] = field(default_factory=dict)
    switch: str = ""
    instead: str = "leave it out"
    to_draw: str = ""
    shown: bool = True

    def entry(self, parameter: str) -> Entry:
        """What becomes of a parameter."""
        return self.entries.get(parameter, Entry(Outcome.WORKS))


def all_of(names: tuple[str, ...], outcome: Outcome, reason: str, source: str) -> dict[str, Entry]:
    """Entries that are alike."""
    return dict.fromkeys(names, Entry(outcome, reason, source))


BEAMS = {"length_penalty": Entry(Outcome.IGNORED, "uses it for beams only, and there are none")}
DRAWS = {"temperature": Entry(Outcome.PARTLY, "draws only where top_k or top_p is sent, too")}


def with_switch(facts: Facts, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `LLM` with the engine's switch on, unless they have it. null leaves it out: release candidates
    before 1.3.0rc27 do not know `enable_penalty`."""
    name, speculation = facts.switch, arguments.get(SPECULATION)
    if not name or not speculation:
        return dict(arguments)
    switched = {**speculation, name: speculation.get(name, True)}
    return {**arguments, SPECULATION: {k: v for k, v in switched.items() if k != name or v is not None}}


def refused(facts: Facts, mode: Mode, subject: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Parameters that would have no effect, and why and what to do: a clause behind "NAME is not supported: "."""
    on = bool((arguments.get(SPECULATION) or {}).get(facts.switch))
    found: dict[str, str] = {}
    for name in PARAMETERS[mode]:
        entry = facts.entry(name)
        if entry.outcome in (Outcome.IGNORED, Outcome.REFUSED):
            instead = facts.to_draw if name in SAMPLING else facts.instead
            found[name] = f"{subject} {entry.reason}; {instead}"
        elif entry.outcome is Outcome.SWITCH and not on:
            why = entry.reason.replace("without it", f"without runtime.extraLlmArgs.{SPECULATION}.{facts.switch}")
            found[name] = f"{subject} {why}; leave it out, or remove that"
    return found
