"""Everything for real: chart, images, kubelet, Triton, models, clients."""
