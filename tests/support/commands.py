"""The commands of `tandem`."""

import typer


def names(group: typer.core.TyperGroup, prefix: str = "tandem") -> list[str]:
    """Commands that the help shows, with their groups' names before them."""
    found = []
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            found += names(command, f"{prefix} {name}")
        elif not command.hidden:
            found.append(f"{prefix} {name}")
    return found
