"""Entry point of `python -m evenshare_core.cli`, the same as `evenshare-core`."""

import sys

from evenshare_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
