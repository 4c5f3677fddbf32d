"""`python -m tandem` is the console script `tandem`."""

from tandem.cli import app

app()
