"""`tandem conformance`: whether a service does what Tandem promises, on the user's own cluster and image.

`exactness`, `facts`, `prompts`, `results` and `report` are pure; `subject` speaks to the server, `cases` holds what
is tried, `soak` repeats it, `cluster` and `watch` read the cluster, and `app` puts them together.
"""
