"""The model repositories: both engines, whole rounds, and a BLS for each way; or the LLM API."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bls.measure import set_parameters
from bench.gpu.served.ways import LONGEST, WAYS, bls
from triton import llmapi_client
from triton.repository import CLIENT_MODELS, COLLECTORS, STREAMS, assemble, variables
from triton.repository import ROUNDS as ROUND_MODELS

ROWS = 64  # that engines take into a pass, and a call
ROLES = {"target": "tensorrt_llm_engine", "draft": "tensorrt_llm_draft_engine"}
[ROUNDS] = ROUND_MODELS
BEFORE = [*CLIENT_MODELS, *COLLECTORS, *STREAMS, ROUNDS]
METERED = Path(__file__).with_name("metered_engine")
_BLS = "speculative_bls"


@dataclass(frozen=True)
class Engines:
    """Folders of the checkpoints, and parameters of the reference engine, by role. `separate`: each has its GPU."""

    checkpoints: Mapping[str, Path]
    parameters: Mapping[str, Mapping[str, str]]
    separate: bool = False


def build(folder: Path, engines: Engines, ways: Iterable[str]) -> Path:
    """Write the repository to `folder`/models; its engines count in `folder`/<role>.meter, which must exist then."""
    models = folder / "models"
    pair = [engines.checkpoints[role] for role in ("target", "draft")]
    common: dict[str, Any] = {"max_batch_size": ROWS, "max_draft_len": LONGEST, "max_engine_rows": ROWS}
    common |= {"separate_devices": engines.separate}
    assemble(models, [*BEFORE, *ROLES.values()], variables(*pair, **common))
    for role, name in ROLES.items():
        version = models / name / "1"  # a link
        version.unlink()
        version.symlink_to(METERED)
        parameters = {**engines.parameters[role], "meter": str(folder / f"{role}.meter")}
        set_parameters(models / name / "config.pbtxt", parameters)
    for way in ways:
        made = assemble(folder / way, [_BLS], variables(*pair, **{**common, **WAYS[way]}))
        config = made / _BLS / "config.pbtxt"
        config.write_text(config.read_text().replace(_BLS, bls(way)))
        shutil.move(made / _BLS, models / bls(way))
    return models


def build_llm_api(folder: Path, engines: Engines, draft_len: int) -> Path:
    """Write a repository of mode LLMAPI to `folder`/models; its draft model drafts so many tokens."""
    given = engines.parameters["target"]
    speculation = {
        "decoding_type": "Draft_Target",
        "max_draft_len": draft_len,
        "speculative_model": str(engines.checkpoints["draft"]),
    }
    arguments: dict[str, Any] = {
        "model": str(engines.checkpoints["target"]),
        "backend": given["backend"],
        "max_batch_size": ROWS,
        "max_seq_len": int(given["max_seq_len"]),
        "max_num_tokens": int(given["max_num_tokens"]),
        "speculative_config": speculation,
    }
    folder.mkdir(parents=True, exist_ok=True)
    return llmapi_client.repository(folder / "models", arguments, engine="Tandem", max_batch_size=ROWS)
