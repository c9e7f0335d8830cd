"""Which Debian packages of Slurm are missing on this host; nothing is installed from here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# Daemons lie in sbin, which an ordinary user's PATH may lack.
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
# A program or a file of each package by which it is known to be there.
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
    """The names that apt-get wants, in the order of PACKAGES; empty where all are there."""
    missing = [package for package, program in PROGRAMS.items() if find(program) is None]
    if not any(LIBRARIES.glob(PLUGIN)):
        missing.append(PLUGINS)
    return missing


def find(program: str) -> str | None:
    """The path of a program of Slurm or MUNGE."""
    return shutil.which(program, path=os.pathsep.join([*os.get_exec_path(), *SBIN]))


def how_to_install(packages: list[str]) -> str:
    return f"apt-get install --no-install-recommends {' '.join(packages)}"
