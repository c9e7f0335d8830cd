"""Replace `portal.demo.slurm.keep` on a host without Slurm; the arguments are the same."""

import sys
from pathlib import Path
from unittest.mock import patch

from portal.demo.slurm import keep, packages

if __name__ == "__main__":
    with (
        patch.object(packages, "find", return_value=None),
        patch.object(packages, "LIBRARIES", Path("/nowhere")),
    ):
        sys.exit(keep.main(sys.argv[1:]))
