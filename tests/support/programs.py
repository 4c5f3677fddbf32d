"""Programs of a machine, by stand-ins."""

import os
import stat
from pathlib import Path

import pytest


class Programs:
    """Stand-ins in PATH, which note how they are called and print what they are given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
        # Without those of this machine.
        monkeypatch.setattr("shutil.which", self.find)

    def find(self, name: str, mode: int = os.X_OK, path: str = "") -> str | None:
        """In the place of shutil.which."""
        return str(self.folder / name) if (self.folder / name).exists() else None

    def add(self, name: str, script: str = "") -> None:
        """Put a program into PATH that notes its call, and runs `script`."""
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.folder}/calls"\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self) -> list[str]:
        """How programs were called, in order."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []
