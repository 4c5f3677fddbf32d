"""docs/reference/cli.md: it is of the commands as they are, and names what `-o json` writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from support.commands import names
from support.live_services import SERVICE
from tandem.api.types import SpeculativeInferenceService
from tandem.cli import app, services, status, top
from tandem.cli.doctor import report
from tandem.cli.doctor.facts import CheckState, ok
from tandem.cli.reference import DOCTOR, STATUS, SUMMARY, TOP, cli_reference

PAGE = Path(__file__).parents[3] / "docs/reference/cli.md"


def test_the_page_in_the_repository_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == cli_reference(app), "run make generate"


@pytest.mark.parametrize("command", names(typer.main.get_group(app)))
def test_each_command_has_a_section(command: str) -> None:
    assert f"\n## {command}\n" in cli_reference(app)


def fields(*tables: Mapping[str, str]) -> set[str]:
    return {name for table in tables for names in table for name in names.split(", ")}


MADE = SpeculativeInferenceService.model_validate(yaml.safe_load(SERVICE))
OBJECTS: list[tuple[str, set[str], dict[str, Any]]] = [
    ("a summary", fields(SUMMARY), services.summary(MADE)),
    ("status", fields(SUMMARY, STATUS), status.as_object(status.Seen(MADE, [], []))),
    ("top", fields(SUMMARY, TOP), top.as_object(top.ServiceTable([MADE]))["services"][0]),
    ("doctor", fields(DOCTOR), report.as_object([ok("a", "b")])),
]


@pytest.mark.parametrize(("name", "documented", "written"), OBJECTS, ids=[row[0] for row in OBJECTS])
def test_each_field_for_programs_is_documented(name: str, documented: set[str], written: dict[str, Any]) -> None:
    assert written.keys() == documented


def test_the_states_of_a_finding_are_documented() -> None:
    assert all(f"`{state}`" in DOCTOR["findings"] for state in CheckState)
