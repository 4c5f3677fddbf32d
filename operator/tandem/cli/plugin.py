"""The command as kubectl's plugin, and its completion in shells.

https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
"""

import os
import shlex
import sys

from tandem.cli.main import app

NAME = "tandem"
BY_KUBECTL = "TANDEM_BY_KUBECTL"
"""Variable that images/release sets for the module."""
DEFAULT_DIRECTIVE = ":0"
"""The last line of a completion: the shell completes file names where it is given none.
https://pkg.go.dev/github.com/spf13/cobra#ShellCompDirective"""


def plugin() -> None:
    """`kubectl tandem`."""
    app(prog_name=f"kubectl {NAME}")


def module() -> None:
    """`python -m tandem`, which krew's plugin runs: then it is kubectl's."""
    plugin() if os.environ.get(BY_KUBECTL) else app(prog_name=NAME)


def complete() -> None:
    """`kubectl_complete-tandem WORD...`, by which kubectl completes the last of its plugin's words."""
    words = [NAME, *sys.argv[1:]]
    _ask("complete_bash", COMP_WORDS=shlex.join(words), COMP_CWORD=str(len(words) - 1))
    print(DEFAULT_DIRECTIVE)


def script(shell: str) -> None:
    """Write what a shell sources."""
    _ask(f"source_{shell}")


def _ask(instruction: str, **words: str) -> None:
    """Have typer answer as it answers a shell, which asks by environment variables."""
    os.environ.update({f"_{NAME.upper()}_COMPLETE": instruction, **words})
    try:
        app(prog_name=NAME)
    except SystemExit as end:
        if end.code:  # what it wrote was not taken
            raise
