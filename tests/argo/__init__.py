"""Argo CD's own controller (`make argo`), which serves the files of examples/gitops."""
