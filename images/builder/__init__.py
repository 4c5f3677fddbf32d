"""Builds Tandem's container images from their Containerfiles: ``python -m builder`` with PYTHONPATH=images.

Docker, Podman or buildah does the building. On a machine without a registry the base is a Debian made by
debootstrap, and wheels come from a folder that pip filled beforehand, so that the build itself needs no network.
An image's tag is the hash of all that goes into it: what is there already is not built again.
"""
