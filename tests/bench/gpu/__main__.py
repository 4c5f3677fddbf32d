"""The command: see the package."""

import argparse
import datetime
import importlib.metadata
import json
from pathlib import Path

import reference_engine  # noqa: F401 - sets up OpenBLAS: before numpy

# isort: split
import torch
import transformers

from bench import gpu
from bench.gpu import pair, profile, steps

PARTS = {"steps": steps.run, "pair": pair.run, "profile": profile.run}


def main() -> None:
    """Run the parts and write their figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=gpu.__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=["steps", "pair"])
    parser.add_argument("--out", type=Path, default=Path("build/gpu-bench"), help="folder of the JSON files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    about = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "triton": importlib.metadata.version("triton"),
        "date": datetime.date.today().isoformat(),
    }
    for part in options.parts:
        figures = PARTS[part]()
        (options.out / f"{part}.json").write_text(json.dumps({**about, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
