"""The stub engine as a Triton model: `stub_engine/` built, a model repository's folder for it, and its meter."""

import dataclasses
import mmap
import os
import struct
from pathlib import Path

import jinja2

from bench.bls.in_flight import NO_LIMITS, Costs, StepLimits
from triton import backends

SOURCE = Path(__file__).with_name("stub_engine")
LIBRARY = "libtriton_stub.so"  # as Triton derives it from the configuration's backend
_WORK = struct.Struct("dq")


@dataclasses.dataclass(frozen=True)
class Stub:
    """An engine: its role ("draft", or "target"), costs, and acceptance (several: sequences differ, by their key).

    `device`: a file that engines name alike which share a device. `meter`: the file for `Meter`. `decoupled`: each
    row comes in a response of its own, as from TensorRT-LLM's backend where it is decoupled.
    """

    role: str
    costs: Costs
    acceptance: tuple[float, ...]
    meter: Path
    device: Path | None = None
    decoupled: bool = False
    limits: StepLimits = NO_LIMITS


class Meter:
    """How much an engine has worked: it counts in a file that is mapped here."""

    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.truncate(file, _WORK.size)
        self._map = mmap.mmap(file, _WORK.size)
        os.close(file)

    def read(self) -> tuple[float, int]:
        """(seconds in steps, steps) so far."""
        seconds, steps = _WORK.unpack(self._map[:])
        return seconds, steps


def build() -> Path:
    """The backend's library."""
    return backends.compiled(SOURCE / "stub.cpp")


def install(models: Path, name: str, stub: Stub, library: Path) -> None:
    """Make the Triton model `name` in the repository `models`."""
    template = jinja2.Template((SOURCE / "config.pbtxt.j2").read_text(), undefined=jinja2.StrictUndefined)
    version = models / name / "1"
    version.mkdir(parents=True)
    (models / name / "config.pbtxt").write_text(template.render(name=name, decoupled=stub.decoupled))
    (version / LIBRARY).symlink_to(library)
    settings = {
        "role": stub.role,
        "acceptance": " ".join(map(str, stub.acceptance)),
        "meter": stub.meter,
        **dataclasses.asdict(stub.costs),
    }
    if stub.decoupled:
        settings["decoupled"] = "1"
    limits = stub.limits
    settings |= {"batch": limits.rows, "max_num_tokens": limits.tokens, "chunked_context": int(limits.chunked)}
    if stub.device:
        settings["device"] = stub.device
    given = {key: value for key, value in settings.items() if value is not None}
    (version / "stub.conf").write_text("".join(f"{key} {value}\n" for key, value in given.items()))


def behind(name: str) -> str:
    """The name of the engine where it is decoupled and clients know it by `name`."""
    return f"{name}_engine"


def collect(models: Path, name: str) -> None:
    """Make the model that has the tensors of the decoupled engine behind `name`, and answers all rows at once."""
    config, collector = (models / behind(name) / "config.pbtxt").read_text(), f"{name}_collector"
    changes = {
        behind(name): collector,
        'backend: "stub"': 'backend: "collector"',
        "decoupled: true": "decoupled: false",
        "reshape: { shape: [ ] } ": "",  # as the operator's: scalars as clients send them, [n, 1]
    }
    for here, there in changes.items():
        config = config.replace(here, there)
    version = models / collector / "1"
    version.mkdir(parents=True)
    (version / backends.collector().name).symlink_to(backends.collector())
    (models / collector / "config.pbtxt").write_text(config)
