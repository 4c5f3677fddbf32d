"""The console script `tandem`: each command is a thin shell over one package.

Nothing imports it.
"""

from tandem.cli.main import app

__all__ = ["app"]
