"""Seeds by which a request asks the stand-in engine for a fault; see stand_in_engine/model.py."""

DRAFT_FAILS, DRAFT_HANGS, TARGET_FAILS, SLOW_TOKENS, TARGET_HANGS = range(1001, 1006)
COUNT_CALLS, IDLE_TIME, COUNT_SEED, COUNT_CALLERS, BOTH_HANG = range(1006, 1011)
AHEAD_HANGS, VERIFICATION_HANGS, COUNT_HUNG, LET_GO, COUNT_AHEAD = range(1011, 1016)
