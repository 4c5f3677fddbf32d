"""`python -m tandem_fetcher`."""

import sys

from tandem_fetcher.cli import main

sys.exit(main())
