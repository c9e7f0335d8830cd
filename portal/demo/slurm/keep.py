"""Keeps a cluster running under `make run-slurm`, as a child of its supervisor.

It prints READY and the path of slurm.conf once all nodes have registered. It restarts a daemon that
ends, later each time, and ends the cluster with its jobs at a signal.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from portal.embedded.children import BACK_OFF_S, HEALTHY_S
from portal.embedded.slurm import CHECK, ENDED, READY

from .cluster import SlurmCluster, SlurmError
from .packages import how_to_install, missing_packages

LOOK_EVERY_S = 0.2
# The grace period of the demo's pool, plus a second for the shims.
CHECKPOINT_S = 6.0
# Slurm's tools retry for 10 s if the controller is gone, and for a minute if the file is gone. A
# file that they cannot parse is an immediate error.
STOPPED = "# This cluster does not run: `make run-slurm` starts it and rewrites this file.\n"


def main(arguments: Sequence[str]) -> int:
    """Keep a cluster with the arguments `FOLDER SOCKETS`, or check the packages with CHECK."""
    if list(arguments) == [CHECK]:
        return check()
    folder, sockets = map(Path, arguments)
    cluster = SlurmCluster(folder, sockets=sockets)
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: signals.append(got))
    try:
        with cluster:
            say(f"{READY}{cluster.conf}")
            keeper = DaemonKeeper(cluster)
            while not signals:
                keeper.look(time.monotonic())
                time.sleep(LOOK_EVERY_S)
            let_jobs_checkpoint(cluster)
    except SlurmError as error:
        say(str(error))
        return 1
    cluster.conf.write_text(STOPPED)
    return 0


def let_jobs_checkpoint(cluster: SlurmCluster) -> None:
    """Signal only the batch scripts, which are shims: scancel would also signal the programs.

    In a normal stop, the supervisor has already waited for all of them.
    """
    running = ("--states=RUNNING", f"--partition={cluster.partition}")
    deadline = time.monotonic() + CHECKPOINT_S
    with contextlib.suppress(SlurmError):
        if cluster.run("squeue", "--noheader", *running):
            cluster.run("scancel", "--quiet", "--batch", "--signal=TERM", "--state=RUNNING", "--me")
        while cluster.run("squeue", "--noheader", *running) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)


def check() -> int:
    """Print the missing packages, if any; return the exit status."""
    missing = missing_packages()
    if missing:
        say(f"Slurm is not installed here; as root: {how_to_install(missing)}")
    return 1 if missing else 0


class DaemonKeeper:
    """Restarts daemons, each after a pause that grows while it ends again soon."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self._cluster = cluster
        self._failures: dict[str, int] = {}
        self._begun: dict[str, float] = {}
        # Daemon -> when to start it again.
        self._again: dict[str, float] = {}

    def look(self, now: float) -> None:
        """Note the daemons that ended, and restart those whose pause is over."""
        for name in self._cluster.dead_daemons():
            if name not in self._again:
                self._again[name] = now + self._note(name, now)
            elif now >= self._again[name]:
                del self._again[name]
                self._begun[name] = now
                self._cluster.start_daemon(name)

    def _note(self, name: str, now: float) -> float:
        """Report that a daemon ended; return the seconds until its restart."""
        if now - self._begun.get(name, 0.0) > HEALTHY_S:
            self._failures[name] = 0
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        pause_s = BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
        how = self._cluster.how_it_ended(name)
        say(f"{name} {ENDED} and starts again in {pause_s:g} s ({how})")
        return pause_s


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
