"""Text and speculation of the trained pair in the shapes of 8B and 1B."""


def run() -> None:
    """The command."""
