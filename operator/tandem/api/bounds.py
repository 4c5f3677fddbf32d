"""Bounds that more than one part of Tandem keeps; a bound of a single field stands at the field (`tandem.api.types`).

The API only ever grows: a bound may rise, never fall. BLS_SEQUENCES is written into revisions, whose renderers are
frozen: it stays.
"""

MAX_DRAFT_LEN = 32
"""Draft tokens a step, at most."""
MAX_REQUESTS = 4096
"""The largest number of requests at once that a rule for the draft length may name."""
SCHEDULE_STEPS = 16
"""Steps of a `draftLenSchedule`, at most."""
BLS_SEQUENCES = 64
"""Sequences that a replica runs at once at most in mode BLS; further ones wait."""
PARALLEL_SIZE = 64
"""GPUs that share each layer of a model, and its pipeline stages, at most."""
REPLICAS = 1000
"""Replicas of a service, at most."""
MESSAGE = 1024
"""Characters of the message beside a figure in status, at most; a condition's is cut to it too."""
