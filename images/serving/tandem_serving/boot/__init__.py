"""The commands of a pod: start Triton, its startup probe, the ranks of a group, the end of all that. Only the image's
`entrypoint.py` imports it.
"""
