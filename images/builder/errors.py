"""The one error that the build tool raises on purpose."""


class BuildError(Exception):
    """Something the user can act on; the message says what to do next."""
