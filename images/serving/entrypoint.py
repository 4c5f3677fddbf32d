"""Starts tandem_serving's entry point from the folder that this file lies in."""

import sys

from tandem_serving.boot.entrypoint import main

if __name__ == "__main__":
    sys.exit(main())
