"""`make run-slurm`: a Slurm cluster on this host, as one child of the supervisor.

The process tree imports nothing of the demo: the child is `portal.demo.slurm.keep`, and these are
the words between the two.
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
# Which lines the terminal shows: a daemon that ended.
ALARM = re.compile(rf"\b{ENDED}\b")
# Its jobs have KillWait to end, its controller writes down what it knows.
STOP_S = 30.0


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a cluster is to be started beside the portal."""
    return environment.get("DEMO_SLURM", "") not in ("", "0")


def check_packages() -> None:
    """Look for Debian's packages of Slurm, before anything starts.

    Raises:
        StartError: some are missing; says how they are installed.
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
    """The child: it ends its daemons and jobs itself, and they end with it if it is killed."""
    command = [sys.executable, "-m", MODULE, str(place.slurm), str(place.run / "slurm")]
    return Spec("slurm", command, stage=1, stop=signal.SIGTERM, stop_s=STOP_S, alarm=ALARM)


def conf_of(child: Child) -> str:
    """The path of slurm.conf once the cluster is ready, else nothing."""
    for line in reversed(child.lines):
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    return ""
