"""`portal.demo.slurm.keep` as on a host without Slurm; takes the same arguments."""

import sys
from pathlib import Path

from portal.demo.slurm import keep, packages

if __name__ == "__main__":
    packages.SBIN = ()
    packages.find = lambda _program: None
    packages.LIBRARIES = Path("/nowhere")
    sys.exit(keep.main(sys.argv[1:]))
