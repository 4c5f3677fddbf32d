"""Pictures of a trace: traffic above, replicas of some policies below."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("svg")
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tandem", "font.size": 8})

from matplotlib import pyplot as plt  # noqa: E402 - after the backend is chosen

from bench.autoscale.simulate import WARM_UP  # noqa: E402
from bench.autoscale.traces import HOUR, Trace  # noqa: E402

POINTS = 240


def draw(path: Path, trace: Trace, courses: Mapping[str, Sequence[tuple[float, int]]]) -> None:
    """Write a picture (SVG). `courses`: replicas wanted by time, where they change."""
    figure, (traffic, replicas) = plt.subplots(2, 1, figsize=(7, 3.6), sharex=True, height_ratios=(1, 2))
    times = np.linspace(WARM_UP, trace.seconds, POINTS)
    moments = [trace.at(float(t)) for t in times]
    traffic.plot(times / HOUR, [moment.rate for moment in moments], color="tab:blue", label="requests/s")
    other = traffic.twinx()
    if len({moment.context for moment in moments}) > 1:
        other.plot(times / HOUR, [m.context for m in moments], color="tab:orange", label="prompts' length, relative")
        other.set_ylim(0)
    else:
        other.plot(times / HOUR, [m.acceptance for m in moments], color="tab:orange", label="acceptance")
        other.set_ylim(0, 1)
    traffic.set_ylim(0)
    lines = [*traffic.lines, *other.lines]
    traffic.legend(lines, [str(line.get_label()) for line in lines], loc="lower right", frameon=False)
    for name, course in courses.items():
        at = [max(t, WARM_UP) / HOUR for t, _ in course] + [trace.seconds / HOUR]
        count = [n for _, n in course] + [course[-1][1]]
        replicas.step(at, count, where="post", label=name, linewidth=1)
    replicas.set_ylim(0)
    replicas.set_xlabel("hours")
    replicas.set_ylabel("replicas wanted")
    replicas.legend(loc="upper right", frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
