"""A gang over several nodes: one task on each, which its shim sees as one program.

    python -I -S shim/ --gang FOLDER       on the first node, started by the shim there
    python -I -S shim/ --task FOLDER       on every node, started by srun for it

The leader starts a task per node through srun, and uses srun's own channels. Its input goes to the
standard input of every task at once. Each task answers on standard error, whereas programs write to
standard output. So no port is opened, and no process waits for a network file system. The leader
signals only the program, not its children, because srun would signal every process. A heterogeneous
job has one srun per group of nodes; ranks are numbered across groups.

When one program fails, the others get FAREWELL_S to report why, and are then killed. The same
happens when a group of nodes ends without an answer. If tasks do not answer even then, the gang
counts as lost. If a task itself is killed, srun ends the step of its group. Otherwise the other
tasks would wait for its report. After a request to stop, every program has
the whole grace, even if others checkpoint sooner.
"""

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from .files import SPEC_BYTES, number, read_json, write_text
from .log import OUT_OF_TIME
from .processes import descendants
from .rendezvous import free_port_of
from .wake import wake_on_signals

KEY = "EVENSHARE_GANG_KEY"
FIRST_RANK = "EVENSHARE_GANG_FIRST_RANK"
NODES = "EVENSHARE_GANG_NODES"
PORT = "EVENSHARE_GANG_PORT"
# By this file the shim learns that ranks were lost. The end of its program then is not the end of
# the job.
BROKEN = "gang.broken"

# Messages of srun that are not logged: that tasks are not bound to CPUs, as requested, and that
# Slurm woke a shim.
NO_NEWS = ("lacks support for cpu binding", "got SIGCONT")

FAREWELL_S = 5.0
# Killed tasks that do not answer within this time have lost their node; srun would keep waiting for
# them.
LAST_WORD_S = 5.0
# Tasks are killed this many seconds before the shim would kill the leader, which must notify them.
EARLIER_S = 1.0
TICK_S = 0.5
_MOST_LINE = 2**16


def lead(folder: Path) -> int:
    spec = read_json(folder / "spec.json", at_most=SPEC_BYTES)
    if spec is None:
        return 0
    return Leader(folder, spec).run()


class Leader:
    """Starts the tasks, forwards requests to them, and collects their exit codes."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self._folder = folder
        self._spec = spec
        self._groups = [int(group["nodes"]) for group in spec["gang"]["groups"]]
        # An engine that ends the whole job also signals this process; the shim then decides.
        handled = (signal.SIGUSR1, signal.SIGCHLD, signal.SIGTERM)
        self._wake = wake_on_signals(handled, self._on_signal)
        self._key = secrets.token_hex(16)
        # Rank 0 listens on the first node, which is this one.
        self._port = free_port_of(f"{folder.parents[1].name}-{folder.name}")
        self._steps: list[subprocess.Popen[bytes]] = []
        self._codes: dict[int, int] = {}
        self._first_bad = 0
        self._asked = self._announced = self._killed = False
        self._kill_at = float("inf")

    def run(self) -> int:
        """Return 0 if all ranks returned 0, else the first other code."""
        names = hostnames(len(self._groups))
        first = 0
        for index, count in enumerate(self._groups):
            self._steps.append(self._srun(index, count, first, names))
            first += count
        self._attend()
        missing = first - len(self._codes)
        if missing and not self._asked:
            codes = [step.returncode for step in self._steps]
            _say(f"nodes that stopped responding: {missing} of {first} (srun: {codes})")
            write_text(self._folder / BROKEN, f"{missing} of {first}\n")
        return self._first_bad or (255 if missing else 0)

    def _srun(
        self, index: int, count: int, first: int, names: list[str]
    ) -> "subprocess.Popen[bytes]":
        argv = ["srun", "--export=ALL", "--kill-on-bad-exit=1", "--wait=0", "--mpi=none"]
        argv += ["--cpu-bind=none", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        if len(self._groups) > 1:
            argv += [f"--het-group={index}"]
        if cpus := os.environ.get("SLURM_CPUS_PER_TASK"):
            argv += [f"--cpus-per-task={cpus}"]
        argv += [
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).parent),
            "--task",
            str(self._folder),
        ]
        ours = {
            KEY: self._key,
            FIRST_RANK: str(first),
            NODES: ",".join(names),
            PORT: str(self._port),
        }
        return subprocess.Popen(
            argv,
            env={**os.environ, **ours},
            stdin=subprocess.PIPE,
            stdout=1,
            stderr=subprocess.PIPE,
        )

    def _attend(self) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        answers = {}
        first = 0
        for step, count in zip(self._steps, self._groups, strict=True):
            if step.stderr is not None:
                os.set_blocking(step.stderr.fileno(), False)
                answers[step.stderr.fileno()] = _Answers(step.stderr, range(first, first + count))
                poll.register(step.stderr.fileno(), select.POLLIN)
            first += count
        while answers:
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == self._wake:
                    os.read(self._wake, 4096)
                    continue
                for line in answers[descriptor].lines():
                    self._hear(line)
                if answers[descriptor].closed:
                    poll.unregister(descriptor)
                    self._miss(answers.pop(descriptor).ranks)
            self._act()
        for step in self._steps:
            step.wait()

    def _patience_ms(self) -> float:
        left_s = max(0.0, self._kill_at - time.monotonic()) + 0.001
        return 1000 * min(TICK_S, left_s)

    def _hear(self, line: bytes) -> None:
        """Record how a rank ended; other lines come from srun and go to the log."""
        fields = line.decode(errors="replace").split()
        if len(fields) != 3 or fields[0] != self._key:
            text = line.decode(errors="replace").strip()
            if text and not any(part in text for part in NO_NEWS):
                _say(text)
            return
        rank, code = int(fields[1]), int(fields[2])
        self._codes[rank] = code
        if code != 0 and not self._first_bad:
            self._first_bad = code
            if not self._asked:
                _say(f"rank {rank} ended with {code}")
                self._kill_at = min(self._kill_at, time.monotonic() + FAREWELL_S)

    def _miss(self, ranks: range) -> None:
        """Handle a closed channel of a group: its ranks that have not reported an end are lost."""
        if not self._asked and any(rank not in self._codes for rank in ranks):
            self._kill_at = min(self._kill_at, time.monotonic() + FAREWELL_S)

    def _act(self) -> None:
        if self._asked and not self._announced:
            self._announced = True
            asked = read_json(self._folder / "stop") or {}
            grace_s = number(asked.get("grace_s"), float(self._spec["grace_s"]))
            self._kill_at = time.monotonic() + max(0.0, grace_s - EARLIER_S)
            self._tell(b"stop\n")
        if time.monotonic() >= self._kill_at:
            self._kill_at = time.monotonic() + LAST_WORD_S
            if self._killed:
                self._give_up()
            elif self._asked:
                _say(OUT_OF_TIME)
            self._killed = True
            self._tell(b"kill\n")

    def _give_up(self) -> None:
        """Kill the sruns that still wait; running tasks end with them."""
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _tell(self, order: bytes) -> None:
        for step in self._steps:
            if step.stdin is not None:
                with contextlib.suppress(OSError):  # all tasks of this step have ended
                    step.stdin.write(order)
                    step.stdin.flush()

    def _on_signal(self, got: int, _frame: Any) -> None:
        if got == signal.SIGUSR1:
            self._asked = True


class _Answers:
    """Lines from the pipe of a group's ranks; longer lines are cut."""

    def __init__(self, pipe: IO[bytes], ranks: range) -> None:
        self.ranks = ranks
        self._descriptor = pipe.fileno()
        self._rest = b""
        self.closed = False

    def lines(self) -> list[bytes]:
        try:
            data = os.read(self._descriptor, _MOST_LINE)
        except BlockingIOError:
            return []
        self.closed = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if self.closed or len(self._rest) > _MOST_LINE:
            lines.append(self._rest)
            self._rest = b""
        return lines


def hostnames(groups: int) -> list[str]:
    """Return the names of the job's nodes, by rank. Slurm abbreviates lists of names."""
    keys = ["SLURM_JOB_NODELIST"]
    if groups > 1:
        keys = [f"SLURM_JOB_NODELIST_HET_GROUP_{index}" for index in range(groups)]
    names: list[str] = []
    for key in keys:
        argv = ["scontrol", "show", "hostnames", os.environ.get(key, "")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
        names += done.stdout.split()
    return names


def _say(text: str) -> None:
    os.write(1, f"[evenshare] {text}\n".encode(errors="replace"))
