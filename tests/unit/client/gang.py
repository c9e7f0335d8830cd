"""Run the ranks of a gang as real processes, which share only a job's folder."""

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tests.tools import PATIENCE_S, eventually

from .job import Job

# A file also ends the grace, so that no test depends on the machine's speed. A rank reads the
# other ranks' messages once more after it has seen the file.
ENDS_GRACE = """
import os.path
from evenshare.runtime import gang, keeper

tend, deadline = gang.GangKeeper._tend, keeper.Keeper._deadline
over = os.path.join(os.environ["EVENSHARE_JOB_DIR"], "over." + os.environ["EVENSHARE_LEASE"])

def tend_until_over(self):
    self.is_over = os.path.exists(over)
    tend(self)

gang.GangKeeper._tend, keeper.Keeper.is_over = tend_until_over, False
keeper.Keeper._deadline = lambda self: 0.0 if self.is_over else deadline(self)
"""
# A program that counts steps. `DIE` names the moment at which its rank kills itself.
COUNT = """
import os, signal, sys, time
from evenshare import lease
from evenshare.runtime import board, checkpoints, keeper

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

moment = os.environ.get("DIE", "")
write_file, say = checkpoints.write_file, board.RankBoard.say
if moment == "half written":
    def half(file, checkpoint):
        write_file(file, checkpoint)
        file.truncate(file.tell() // 2)
        die()
    checkpoints.write_file = half
if moment == "not renamed":
    checkpoints.write_file = lambda *what: (write_file(*what), die())
if moment == "renamed":
    checkpoints.flush_folder = die
if moment == "complete":
    keeper.Keeper.leave = die

def said(self, **facts):
    say(self, **facts)
    if facts.get(moment) is not None:
        die()

board.RankBoard.say = said
rank, pause = lease.rank(), float(os.environ.get("PAUSE", "0.002"))
lease.setup(every_s=float(os.environ.get("EVERY", "300")))
state = lease.resume(default={"step": 0, "rank": rank})
assert state["rank"] == rank
print("rank", rank, "from", state["step"], flush=True)
shown = state["step"] + 20
for step in lease.steps(state["step"], state["step"] + int(sys.argv[1])):
    lease.report(rank=rank)
    lease.store({"step": step + 1, "rank": rank})
    if step < shown:
        print("lease", os.environ["EVENSHARE_LEASE"], "rank", rank, "at", step + 1, flush=True)
    time.sleep(pause)
print("rank", rank, "done", step + 1, flush=True)
"""
FOREVER = "100000000"


@dataclass
class Gang:
    """A job of several ranks; `start` starts a lease."""

    folder: Path
    size: int = 2
    grace_s: float = 20.0
    job: Job = field(init=False)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.job = Job(self.folder, grace_s=self.grace_s)

    def start(
        self,
        *arguments: str,
        size: int = 0,
        program: str = COUNT,
        variables: Mapping[int, dict[str, str]] = MappingProxyType({}),
    ) -> list[subprocess.Popen[bytes]]:
        """Run source text as every rank under a new lease; `variables` maps ranks to variables."""
        self.job.grant()
        count = size or self.size
        return [
            self.rank(rank, count, arguments, program, variables.get(rank, {}))
            for rank in range(count)
        ]

    def rank(
        self,
        rank: int,
        size: int,
        arguments: Sequence[str],
        program: str = COUNT,
        variables: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Run a rank under the current lease."""
        world = {"RANK": str(rank), "WORLD_SIZE": str(size), "MARK": f"lease {self.job.lease}"}
        environment = {**self.job.environment(), **world, **(variables or {})}
        command = [self.job.python, "-c", ENDS_GRACE + program, *arguments]
        with self.job.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(process)
        return process

    def begun_at(self) -> list[int]:
        """Wait until all ranks of the current lease have started; return each rank's first step."""
        want = self.job.lease * self.size
        pattern = re.compile(r"rank \d+ from (\d+)\n")
        eventually(lambda: len(pattern.findall(self.job.text)) >= want)
        return [int(step) for step in pattern.findall(self.job.text)[-self.size :]]

    def reaches(self, step: int) -> None:
        """Wait until all ranks run, and rank 0 has made a step of the first 20 of its lease.

        The log is written at once, and the progress of a job once per second.
        """
        printed = re.compile(rf"lease {self.job.lease} rank (\d+) at (\d+)\n")

        def is_there() -> bool:
            steps = [(int(rank), int(at)) for rank, at in printed.findall(self.job.text)]
            runs = {rank for rank, _ in steps}
            return len(runs) == self.size and any(at >= step for rank, at in steps if rank == 0)

        eventually(is_there)

    def end_grace(self) -> None:
        """End the grace of the current lease for all ranks that have been signalled."""
        (self.folder / f"over.{self.job.lease}").touch()

    def knows_complete_set(self) -> bool:
        """Return whether rank 0 of the current lease has published a complete set."""
        said = (self.folder / "ranks").glob(f"{self.job.lease:06d}-*/00000.json")
        return any('"complete"' in path.read_text() for path in said)

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()


def signal_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Send the checkpoint signal to each rank that runs."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGUSR1)


def codes_of(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Wait until all ranks have ended, and return their exit codes."""
    return [process.wait(PATIENCE_S) for process in processes]


def preempt(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """End a lease with a signal to each rank, and return the exit codes."""
    signal_all(processes)
    return codes_of(processes)
