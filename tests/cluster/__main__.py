"""``python -m cluster``."""

from cluster.cli import main

if __name__ == "__main__":
    main()
