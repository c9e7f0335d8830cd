"""`python -m evenshare` is the command `evenshare`."""

import sys

from evenshare.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
