"""Draw the loss curves from target.csv and drafts.csv into loss.svg."""

import csv
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DRAFT = "3x128"


def columns(path: Path) -> dict[str, list[float]]:
    """Return a CSV file's columns by name."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def main() -> None:
    """Draw target (next-token loss) beside draft (distillation loss and agreement)."""
    # Fixed ids and no date: the same curves give the same file.
    mpl.rcParams["svg.hashsalt"] = "tandem"
    target, draft = columns(HERE / "target.csv"), columns(HERE / "drafts.csv")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4))
    left.plot(target["step"][1:], target["loss"][1:])
    left.set(title="target: loss per token (nats)", xlabel="step", yscale="log")
    for own, label in ((0, "real text"), (1, "target's own text")):
        rows = [i for i, kind in enumerate(draft["own_text"]) if kind == own and draft["step"][i] > 1]
        steps = [draft["step"][i] for i in rows]
        middle.plot(steps, [draft[f"loss_{DRAFT}"][i] for i in rows], label=label)
        right.plot(steps, [draft[f"agreement_{DRAFT}"][i] for i in rows], label=label)
    middle.set(title="draft: distillation loss (nats)", xlabel="step", yscale="log")
    right.set(title="draft: first choice is the target's", xlabel="step")
    for axes in (middle, right):
        axes.legend()
    figure.tight_layout()
    figure.savefig(HERE / "loss.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
