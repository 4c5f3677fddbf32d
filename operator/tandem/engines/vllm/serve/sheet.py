"""What is written of a resource so far, and what is not mapped, each with its reason."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem.engines.vllm.serve.command import ImportRefused

_ORDER = ("runtime", "target", "draft", "speculation", "placement", "serving", "replicas", "podTemplate")
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_URI = re.compile(r"(hf|s3|gs|pvc|oci|file)://.+")


@dataclass
class Sheet:
    """`minor`: of the profile's vLLM. `any_argument`: it is newer than all that Tandem knows."""

    minor: str
    any_argument: bool = False
    spec: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put(self, path: str, value: Any) -> None:
        """Write a field, by its path in the spec."""
        *parents, last = path.split(".")
        inside = self.spec
        for name in parents:
            inside = inside.setdefault(name, {})
        inside[last] = value

    def get(self, path: str, default: Any = None) -> Any:
        """A field that was written."""
        found: Any = self.spec
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return default if found is None else found

    def argument(self, path: str, value: Any) -> None:
        """Write an argument of the engine that the resource has no field for."""
        self.put(f"runtime.extraLlmArgs.{path}", value)

    def skip(self, what: str, why: str) -> None:
        """What is not mapped, and what to do."""
        self.skipped.append(f"{what}: {why}")

    def note(self, what: str, why: str) -> None:
        """What is otherwise than with vLLM's own server."""
        self.notes.append(f"{what}: {why}")

    def model(self, path: str, written: str, what: str) -> None:
        """Write where a model comes from. Raises ImportRefused."""
        if _URI.fullmatch(written):
            self.put(f"{path}.uri", written)
        elif written.startswith("/"):
            self.put(f"{path}.uri", f"file://{written.rstrip('/')}")
            self.note(
                what,
                f"{written} is a folder of the serving image here: write pvc://CLAIM/PATH where it is a volume's",
            )
        elif _HUB.fullmatch(written):
            self.put(f"{path}.uri", f"hf://{written}")
        else:
            raise ImportRefused(
                f"{what}: {written!r} is no model that the resource can name: give ORG/NAME of the Hugging Face Hub,"
                " an absolute path, or a uri such as s3://BUCKET/PATH"
            )

    def ordered(self) -> dict[str, Any]:
        """The spec, in the order in which people read it."""
        return {name: self.spec[name] for name in _ORDER if name in self.spec}
