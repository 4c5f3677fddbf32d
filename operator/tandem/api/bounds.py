"""Bounds that more than one part of Tandem keeps. Revisions are shaped by them: none changes but upwards.

Bounds of a single field stand at the field (`tandem.api.types`).
"""

MAX_DRAFT_LEN = 32
"""Draft tokens a step, at most."""
MAX_REQUESTS = 4096
"""The largest number of requests at once that a rule for the draft length may name."""
SCHEDULE_STEPS = 16
"""Steps of a `draftLenSchedule`, at most."""
BLS_SEQUENCES = 64
"""Sequences that a replica runs at once at most in mode BLS; further ones wait."""
