"""The console script `tandem`."""

from tandem.cli.main import app

__all__ = ["app"]
