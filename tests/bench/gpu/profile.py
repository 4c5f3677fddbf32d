"""Where a pass's time goes, by kernel."""

import numpy as np
import torch
from torch.profiler import ProfilerActivity

from bench.gpu import shapes
from reference_engine.backend import Segment
from reference_engine.torch_backend.loading import Sizes


def run() -> None:
    """Tables of kernels for one decoded row and one verification."""
    for shape, config in shapes.CONFIGS.items():
        model, _ = shapes.load(config, Sizes(slots=16, max_seq_len=2048, max_num_tokens=1024))
        for rows, tokens in ((1, 1), (1, 5), (16, 5)):
            segments = [Segment(slot, 1000, np.arange(tokens, dtype=np.int32), tokens) for slot in range(rows)]
            for _ in range(3):
                model.forward(segments)
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
                for _ in range(5):
                    model.forward(segments)
                torch.cuda.synchronize()
            print(f"{shape}, {rows} x {tokens} at 1000, 5 passes")
            table = profiler.key_averages().table(sort_by="cuda_time_total", row_limit=18, max_name_column_width=60)
            print("\n".join(line[:62] + line[-120:] for line in table.splitlines()), flush=True)
