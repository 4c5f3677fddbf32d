"""Seeds by which a request asks the stand-in engine for a fault; see stand_in_engine/model.py."""

DRAFT_FAILS, DRAFT_HANGS, TARGET_FAILS, SLOW_TOKENS, COUNT_CALLS, TARGET_HANGS, IDLE_TIME = range(1001, 1008)
