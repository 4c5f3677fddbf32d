"""docs/reference/cli.md: the commands as a page to read, made of the commands themselves. Pure."""

from collections.abc import Iterator, Mapping

import typer
from typer.core import TyperCommand, TyperGroup

from tandem.cli.options import PANEL

TITLE = """\
# The command `tandem`

`tandem` is in `.venv/bin` after `make venv`; `pip install .` puts it into an environment of yours, and with it
`kubectl tandem`. This page is made from the commands by `make generate`.

Commands that ask a cluster do so by `kubectl`, which must be in PATH, with its kubeconfig, context and credentials.
They take these of its options, before the command or after it:
"""
COMPLETION = """\
## Profiles of your cluster

`render` and `validate` know the profiles that come with Tandem; `--settings FILE` gives them your cluster's. `apply`,
`diff` and `doctor` read those of the operator where they may.

```console
kubectl -n tandem-system get configmap tandem-operator-settings -o jsonpath='{.data.settings\\.yaml}' > settings.yaml
```

## Completion

`source <(tandem completion bash)`, or `zsh`, or `tandem completion fish | source`. For `kubectl tandem`, kubectl 1.26
or newer finds `kubectl_complete-tandem` in PATH. Names of services are completed, too.

## Colours and pipes

`NO_COLOR` is honoured, and there are no colours where the output is no terminal. A pipe that is closed, and Ctrl-C
(exit code 130), end a command without a trace.
"""
OBJECTS_TITLE = """\
## Objects for programs

What `-o json` and `-o yaml` write. Names stay: fields are only added. What is not known is null.
"""
SUMMARY = {
    "namespace, name": "The service.",
    "mode, decodingType, profile": "As in its specification.",
    "ready": "Whether condition `Ready` is True for the present generation.",
    "reconciling": "Whether the operator is at work, or has not looked yet.",
    "stalled": "Whether a person must act.",
    "reason, message": "Of `Stalled`, else `Reconciling`, else `Ready`. `NotObserved`: no operator has looked yet.",
    "deleting": "Whether it is being deleted.",
    "url, openAIURL": "Triton's HTTP endpoint, and OpenAI's API.",
    "currentRevision, updateRevision": "The revision that is complete, and the wanted one.",
    "replicas, readyReplicas": "Wanted, and those that answer.",
}
STATUS = {
    "conditions": "As in status.",
    "speculation, autoscaling": "As in status: figures, and the last decision.",
    "pods": "Its server pods: `name`, `revision`, `node`, `ip`, `restarts`, `ready`, `state`; null: not readable.",
    "autoscalers": "HorizontalPodAutoscalers: `kind`, `name`, `replicas`, `desiredReplicas`, `minReplicas`,"
    " `maxReplicas`, `averageValue`; null: not readable.",
}
TOP = {
    "running, waiting": "Requests.",
    "tokensPerSecond": "Generated.",
    "acceptanceRate, meanAcceptedLength, speedup, observedAt": "Of speculation, from status.",
    "worth": "What speculation is worth, in a sentence; or why that is not known, and what measures it.",
    "desiredReplicas, signal": "The last decision on replicas.",
}
DOCTOR = {
    "findings": "`check`, `state` (`ok`, `warn`, `fail`) and `message` of each.",
    "failed": "Whether any is `fail`.",
}
OBJECTS: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("`tandem status`: an object `services` with a list of these", SUMMARY),
    ("`tandem status NAME`: those, and", STATUS),
    (
        "`tandem top`: `problem` (why there are no metrics), and `services`: a list of those of `tandem status`, and",
        TOP,
    ),
    ("`tandem doctor`", DOCTOR),
)


def cli_reference(app: typer.Typer) -> str:
    """The page."""
    group = typer.main.get_group(app)
    connection = [each for each in _records(group) if each[2] == PANEL]
    every = [*_commands(group, "tandem")]
    parts = [TITLE, _table(connection), _contents(every), *(_section(*one) for one in every), _objects(), COMPLETION]
    return "\n".join(parts)


def _contents(commands: list[tuple[str, TyperCommand]]) -> str:
    """A row for each command, with the first paragraph of its help."""
    firsts = [(name, (command.help or "").partition("\n\n")[0]) for name, command in commands]
    rows = [f"| `{name}` | [{_cell(first)}](#{name.replace(' ', '-')}) |\n" for name, first in firsts]
    return "".join(["| command | |\n", "|---|---|\n", *rows])


def _commands(group: TyperGroup, prefix: str) -> Iterator[tuple[str, TyperCommand]]:
    """Names and commands that the help shows, in its order."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{prefix} {name}")
        elif isinstance(command, TyperCommand) and not command.hidden:
            yield f"{prefix} {name}", command


def _section(name: str, command: TyperCommand) -> str:
    ctx = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(ctx)])
    records = [each for each in _records(command) if each[2] != PANEL and "--help" not in each[0]]
    parts = [f"## {name}\n", f"```\n{usage}\n```\n", f"{_paragraphs(command.help or '')}\n"]
    parts += [_table(records)] if records else []
    parts += [f"{command.epilog}\n"] if command.epilog else []
    return "\n".join(parts)


def _records(command: TyperCommand | TyperGroup) -> list[tuple[str, str, str]]:
    """Words, meaning and panel of each option and argument."""
    ctx = typer.Context(command)
    found = []
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record:
            found.append((*record, str(getattr(parameter, "rich_help_panel", None) or "")))
    return found


def _table(records: list[tuple[str, str, str]]) -> str:
    rows = [f"| `{_cell(words)}` | {_cell(meaning)} |\n" for words, meaning, _ in records]
    return "".join(["| | |\n", "|---|---|\n", *rows])


def _objects() -> str:
    parts = [OBJECTS_TITLE]
    for title, fields in OBJECTS:
        rows = [
            f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {text} |\n" for names, text in fields.items()
        ]
        parts.append("".join([f"{title}:\n\n", "| | |\n", "|---|---|\n", *rows]))
    return "\n".join(parts)


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _cell(text: str) -> str:
    """Of a table, in which a bar is a column's end, even in code."""
    return " ".join(text.split()).replace("|", r"\|")
