"""Flux's own controllers (`make flux`), which serve the files of examples/gitops."""
