"""Makes a release: ``python -m release`` with PYTHONPATH=images:operator:tests (`make release`, `make publish`).

A release is a folder of files that name each other by digest: images as OCI layouts, a chart whose defaults are
those images, manifests for plain kubectl and Kustomize, the kubectl plugin, bills of materials, provenance, checksums
and a signature over these. Publishing copies images and chart to a registry, unchanged.
"""
