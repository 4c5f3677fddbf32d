"""`tandem import`: a start of vLLM's own server to a SpeculativeInferenceService."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.options import SettingsFile, user_errors

if TYPE_CHECKING:
    from tandem.api.profile import Profile
    from tandem.engines.vllm.serve import Imported
    from tandem.settings import Settings

HELP = (
    "Print the SpeculativeInferenceService that does the same as a command that starts vLLM's server.\n\n"
    "Each flag and variable becomes a field or an argument of the engine. Comments and standard error list the"
    " others, with the reason and what to do. Secret values are never printed. The command does not check models,"
    " nodes or the rest of the cluster."
)
EXIT_CODES = (
    "Exit codes: 0 `tandem validate` accepts it; 1 it does not, or there is nothing to import; 2 wrong options."
)

Command = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND",
        help="A command in quotes, such as 'vllm serve MODEL --max-model-len 8192', or its words behind --; a file"
        " with one, or with a manifest of a container that runs it; - for standard input.",
    ),
]
ProfileName = Annotated[
    str, typer.Option("--profile", help="Profile with vLLM that is to run it. The first with GPUs by default.")
]
Name = Annotated[str, typer.Option("--name", help="Name of the service. The model's by default.")]


def import_service(
    command: Command, profile: ProfileName = "", name: Name = "", settings: SettingsFile = None
) -> None:
    """Run the command; exits with one of `EXIT_CODES`."""
    from tandem.cli.manifests import judge_all
    from tandem.engines.vllm.serve import find, service_of
    from tandem.settings import load_settings

    with user_errors():
        loaded = load_settings(settings)
        found = service_of(find(_text(command)), _profile(loaded, profile), name)
    text = _yaml(found)
    typer.echo(text, nl=False)
    for line in _remarks(found):
        typer.secho(line, fg=typer.colors.YELLOW, err=True)
    (judged,) = judge_all(text, loaded, "output")
    for fault in judged.faults:
        typer.secho(fault, fg=typer.colors.RED, err=True)
    for warning in judged.accepted.warnings if judged.accepted else ():
        typer.secho(f"warning: {warning}", fg=typer.colors.YELLOW, err=True)
    if judged.faults:
        raise typer.Exit(1)


def _text(command: Iterable[str]) -> str:
    from tandem.cli.manifests import read_text

    words = [*command]
    if len(words) > 1:
        return shlex.join(words)
    is_file = words[0] == "-" or (" " not in words[0] and Path(words[0]).is_file())
    return read_text(Path(words[0])) if is_file else words[0]


def _profile(settings: "Settings", name: str) -> "Profile":
    from tandem.engines.vllm.serve.command import ImportRefused
    from tandem.engines.vllm.serve.service import runs_vllm

    able = [each for each in settings.profiles if runs_vllm(each)]
    found = next((each for each in able if (each.name == name if name else each.gpus)), None)
    if found is None:
        names = ", ".join(each.name for each in able) or "none: name one in the settings"
        raise ImportRefused(f"there is no profile {name!r} with vLLM: those with it are {names}")
    return found


def _remarks(found: "Imported") -> list[str]:
    return [*(f"not mapped: {each}" for each in found.skipped), *(f"note: {each}" for each in found.notes)]


def _yaml(found: "Imported") -> str:
    import yaml

    remarks = [f"# {line}\n" for line in _remarks(found)]
    return "".join([*remarks, yaml.safe_dump(found.manifest, sort_keys=False, allow_unicode=True, width=110)])
