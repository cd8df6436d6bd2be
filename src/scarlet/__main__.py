"""`python -m scarlet` is `scarlet`."""

import sys

from scarlet.cli import main

if __name__ == "__main__":
    sys.exit(main())
