"""The Slurm cluster of `make run-slurm`, as one child of the supervisor.

The process tree does not import the demo: the child runs `portal.demo.slurm.keep`. These constants
are the protocol between them.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping

from .children import Child, Spec
from .errors import StartError
from .folders import Folders

MODULE = "portal.demo.slurm.keep"
CHECK = "--check"
READY, ENDED = "ready: ", "has ended"
# Lines that the terminal shows: a daemon ended.
ALARM = re.compile(rf"\b{ENDED}\b")
# Jobs have KillWait to end, and then the controller writes its state.
STOP_S = 30.0


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to start a cluster together with the portal."""
    return environment.get("DEMO_SLURM", "") not in ("", "0")


def check_packages() -> None:
    """Check for Debian's packages of Slurm, before anything starts.

    Raises:
        StartError: some are missing; the text says how to install them.
    """
    done = subprocess.run(
        [sys.executable, "-m", MODULE, CHECK],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StartError((done.stdout + done.stderr).strip())


def slurm_spec(place: Folders) -> Spec:
    """Return the child's spec: it ends its daemons and jobs, which also end if it is killed."""
    command = [sys.executable, "-m", MODULE, str(place.slurm), str(place.run / "slurm")]
    return Spec("slurm", command, stage=1, stop=signal.SIGTERM, stop_s=STOP_S, alarm=ALARM)


def conf_of(child: Child) -> str:
    """Return the path of slurm.conf once the cluster is ready, else empty."""
    for line in reversed(child.lines):
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    return ""
