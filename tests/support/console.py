"""Console blocks of the pages, run as a reader would copy them: one shell for all blocks of a name.

A block is marked by a comment before it, `<!-- test: NAME -->`. With prompts (`$ `), lines without one are what the
command prints; without prompts every line is a command.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem.api import ports

_BLOCK = re.compile(r"^<!-- test: ([\w-]+) -->\n```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOOSE = {" ": r"\s+", **dict.fromkeys("0123456789", r"\d+(?:\.\d+)?")}
"""Patterns for parts of a line that differ from run to run, by their first character."""
_MARK = "step-ended-with-status"
_FORWARD = re.compile(r"\bport-forward\b.* (\d+):\d+ &$|\btandem ui\b.* &$")


@dataclass(frozen=True)
class Step:
    """A command, and the lines that the page shows below it."""

    command: str
    shown: str


@dataclass(frozen=True)
class Result:
    """What a command did: its exit status, and what it printed on both streams."""

    step: Step
    status: int
    printed: str


def marked(text: str, name: str) -> list[Step]:
    """Commands of the blocks of a page that have this name, in order."""
    return [step for found, block in _BLOCK.findall(text) if found == name for step in _steps(block)]


def names(text: str) -> list[str]:
    """Names of the page's blocks, each once."""
    return list(dict.fromkeys(found for found, _ in _BLOCK.findall(text)))


def _steps(block: str) -> Iterator[Step]:
    if not block.startswith("$ "):
        yield Step(block, "")
        return
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, shown = _command(part)
        yield Step(command, shown)


def _command(part: str) -> tuple[str, str]:
    """The command, which goes on after a backslash, and the lines after it."""
    lines = part.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[: end + 1]), "\n".join(lines[end + 1 :])


def run(steps: list[Step], folder: Path, environment: Mapping[str, str], seconds: float) -> list[Result]:
    """Run the steps in one bash, until one fails. A port that is forwarded is waited for.

    Raises subprocess.TimeoutExpired after `seconds` for all of them.
    """
    # By KILL, as a job that has not begun yet has the shell's trap, and may lose another signal.
    ended = "trap 'status=$?; echo; echo {mark} $status; kill -9 $(jobs -p) 2>/dev/null' EXIT\nset -e -o pipefail\n"
    script = ended.format(mark=_MARK)
    script += "".join(f"{step.command}\n{_waiting(step.command)}echo; echo {_MARK} 0\n" for step in steps)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=seconds,
        check=False,
    )
    parts = re.split(rf"\n{_MARK} (\d+)\n", done.stdout)
    return [
        Result(step, int(status), printed)
        for step, printed, status in zip(steps, parts[::2], parts[1::2], strict=False)
    ]


def _waiting(command: str) -> str:
    found = _FORWARD.search(command)
    port = found and (found[1] or ports.METRICS_APIS)
    return f"until (: > /dev/tcp/localhost/{port}) 2>/dev/null; do sleep 0.1; done\n" if port else ""


def matches(shown: str, printed: str) -> bool:
    """Whether the lines that a page shows are printed in this order: numbers may differ, `...` is anything, and a
    longer line may follow what is shown of it."""
    lines = [r"[ \t]*" + _loosely(line.strip()) + r".*\n" for line in shown.splitlines() if line.strip() != "..."]
    return re.search("^" + r"(?:.*\n)*?".join(lines), printed + "\n", re.MULTILINE) is not None


def _loosely(line: str) -> str:
    """The pattern of a line."""
    parts = re.split(r"(\.\.\.|\d+(?:\.\d+)?|\s+)", line)
    return "".join(_LOOSE.get(part[:1], re.escape(part)) if part != "..." else ".*" for part in parts if part)
