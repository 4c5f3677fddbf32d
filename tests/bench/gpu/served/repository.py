"""The model repository: both engines, whole rounds, and a BLS for each way."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bls.measure import set_parameters
from bench.gpu.served.ways import LONGEST, WAYS
from triton.repository import CLIENT_MODELS, COLLECTORS, ROUNDS, STREAMS, assemble, variables

ROWS = 64  # that engines take into a pass, and a call
ROLES = {"target": "tensorrt_llm_engine", "draft": "tensorrt_llm_draft_engine"}
BEFORE = [*CLIENT_MODELS, *COLLECTORS, *STREAMS, *ROUNDS]
METERED = Path(__file__).with_name("metered_engine")
_BLS = "speculative_bls"


@dataclass(frozen=True)
class Engines:
    """Folders of the checkpoints, by role, and parameters of the reference engine."""

    checkpoints: Mapping[str, Path]
    parameters: Mapping[str, str]


def build(folder: Path, engines: Engines, ways: Iterable[str]) -> Path:
    """Write the repository to `folder`/models; its engines count in `folder`/<role>.meter, which must exist then."""
    models = folder / "models"
    pair = [engines.checkpoints[role] for role in ("target", "draft")]
    common: dict[str, Any] = {"max_batch_size": ROWS, "max_draft_len": LONGEST}
    assemble(models, [*BEFORE, *ROLES.values()], variables(*pair, **common, max_engine_rows=ROWS))
    for role, name in ROLES.items():
        version = models / name / "1"  # a link
        version.unlink()
        version.symlink_to(METERED)
        set_parameters(models / name / "config.pbtxt", {**engines.parameters, "meter": str(folder / f"{role}.meter")})
    for way in ways:
        changes = {**common, "max_engine_rows": ROWS, **WAYS[way]}
        made = assemble(folder / way, [_BLS], variables(*pair, **changes))
        for model in sorted(made.iterdir()):
            config = model / "config.pbtxt"
            config.write_text(config.read_text().replace(_BLS, f"bls_{way}"))
            shutil.move(model, models / model.name.replace(_BLS, f"bls_{way}"))
    return models
