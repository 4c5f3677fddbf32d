"""Downloads one model into a shared cache: a pod's Job, without credentials for the Kubernetes API.

The parts: `uri` and `selection` (what is asked for, pure), `hub` and `buckets` (where it comes from),
`digests` (whether it is whole), `cache` (where it goes), `download` (how), `progress` and `verdict` (what is told).
"""
