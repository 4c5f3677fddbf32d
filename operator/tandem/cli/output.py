"""What `-o` asks for: the text for people, with more in it where it is wide, or the same as an object."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer


class Format(StrEnum):
    """Values of `-o`."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"

    @property
    def is_object(self) -> bool:
        """Whether programs read it."""
        return self in (Format.JSON, Format.YAML)


Output = Annotated[
    Format,
    typer.Option("-o", "--output", help="For people: text, or wide, which has more. For programs: json, yaml."),
]


def write_object(found: Any, form: Format) -> None:
    """Write an object that JSON can hold."""
    if form is Format.JSON:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    import yaml

    typer.echo(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=110), nl=False)
