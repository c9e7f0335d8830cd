"""Detection of missing Debian packages of Slurm; nothing is installed."""

import os
import shutil
from pathlib import Path

# Daemons are in sbin, which may be missing in an ordinary user's PATH.
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
# Package -> a program or file by which it is detected.
PROGRAMS = {
    "munge": "munged",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurm-client": "sbatch",
}
PLUGINS = "slurm-wlm-basic-plugins"
PLUGIN = "*/slurm*/select_cons_tres.so"
LIBRARIES = Path("/usr/lib")
PACKAGES = (*PROGRAMS, PLUGINS)


def missing_packages() -> list[str]:
    """Return the missing packages for apt-get, in the order of PACKAGES; empty if all exist."""
    missing = [package for package, program in PROGRAMS.items() if find(program) is None]
    if not any(LIBRARIES.glob(PLUGIN)):
        missing.append(PLUGINS)
    return missing


def find(program: str) -> str | None:
    """Return the path of a program of Slurm or MUNGE, or None if it is missing."""
    return shutil.which(program, path=os.pathsep.join([*os.get_exec_path(), *SBIN]))


def how_to_install(packages: list[str]) -> str:
    return f"apt-get install --no-install-recommends {' '.join(packages)}"
