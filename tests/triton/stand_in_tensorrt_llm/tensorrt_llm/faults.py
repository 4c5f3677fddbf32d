"""Seeds by which a request asks the stand-in for a fault."""

REQUEST_FAILS, ENGINE_DIES, HANGS = range(2001, 2004)
