"""`python -m tandem` is the console script `tandem`."""

from tandem.cli.plugin import module

module()
