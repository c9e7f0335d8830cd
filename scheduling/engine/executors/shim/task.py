"""The task of a gang on one node: starts the program there, and communicates with the leader."""

import os
import select
import signal
import socket
from pathlib import Path
from typing import Any

from .files import SPEC_BYTES, file_mask, read_json
from .gang import FIRST_RANK, KEY, NODES, PORT
from .processes import end_descendants
from .program import adopt_orphans, inherited, start_program
from .usage import Usage
from .wake import wake_on_signals

KILLED = 128 + signal.SIGKILL


def attend(folder: Path) -> int:
    """Run a gang's program on this node, and report its end to the leader."""
    spec = read_json(folder / "spec.json", at_most=SPEC_BYTES)
    if spec is None:
        return 0
    os.umask(file_mask(folder))
    return Task(folder, spec).run()


class Task:
    """The program of one rank. It dies with srun, without a grace."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self._folder = folder
        self._rank = int(os.environ[FIRST_RANK]) + int(os.environ["SLURM_PROCID"])
        self._key = os.environ[KEY]
        # Slurm signals every process of a step, so the program receives signals itself and the task
        # forwards none.
        handled = (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
        self._wake = wake_on_signals(handled, lambda _got, _frame: None)
        self._status: int | None = None
        self._program = {
            **spec,
            "argv": spec["gang"]["argv"],
            "env": {**spec["env"], **self._ranks(spec["gang"]["groups"])},
            # The environment above already contains the SLURM_ variables, for the whole gang.
            "inherit": [one for one in spec.get("inherit", ()) if one != "SLURM_"],
        }
        self._signal = signal.Signals[spec["signal"]]
        self._ranks_in_all = sum(int(group["nodes"]) for group in spec["gang"]["groups"])

    def run(self) -> int:
        usage = Usage(self._folder, self._program, rank=self._rank, ranks=self._ranks_in_all)
        adopt_orphans()
        program = start_program(self._program, output=1)
        if program.problem:
            os.write(1, f"[evenshare] {program.problem}\n".encode())
        self._watch(program.pid, usage)
        end_descendants(lambda pid, status: self._note(pid, status, program.pid))
        usage.finish()
        code = program.refusal
        if code is None:
            code = KILLED if self._status is None else os.waitstatus_to_exitcode(self._status)
        if code < 0:
            code = 128 - code
        os.write(2, f"{self._key} {self._rank} {code}\n".encode())
        return 0

    def _watch(self, child: int, usage: Usage) -> None:
        """Follow the leader's orders, until the program has ended or the leader is gone."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(0, select.POLLIN)
        heard = b""
        while self._status is None:
            ready = dict(poll.poll(1000))
            if self._wake in ready:
                os.read(self._wake, 4096)
            if 0 in ready:
                data = os.read(0, 4096)
                if not data:
                    return
                *orders, heard = (heard + data).split(b"\n")
                if b"kill" in orders:
                    return
                if b"stop" in orders:
                    self._ask(child)
            self._reap(child)
            usage.tick()

    def _ask(self, child: int) -> None:
        try:
            os.kill(child, self._signal)
            # A suspended process would not handle its signal.
            os.killpg(child, signal.SIGCONT)
        except ProcessLookupError:
            return

    def _reap(self, child: int) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._note(*ended, child)
        except ChildProcessError:
            return

    def _note(self, pid: int, status: int, child: int) -> None:
        if pid == child:
            self._status = status

    def _ranks(self, groups: list[dict[str, int]]) -> dict[str, str]:
        """Return the variables by which ranks find each other: one process per node, as with srun.

        A program that starts several processes per node, such as torchrun, reads NNODES and
        NODE_RANK, and replaces the variables that describe single processes.
        """
        names = os.environ[NODES].split(",")
        gpus = [int(group["gpus"]) for group in groups for _ in range(int(group["nodes"]))]
        rank, size = str(self._rank), str(len(gpus))
        return {
            **inherited(("SLURM_",)),
            **(_as_one_step(rank, size, names) if len(groups) > 1 else {}),
            "EVENSHARE_NODES": ",".join(names),
            "EVENSHARE_NODE_RANK": rank,
            "EVENSHARE_GPUS_PER_NODE": ",".join(map(str, gpus)),
            "MASTER_ADDR": _address(names[0]),
            "MASTER_PORT": os.environ[PORT],
            "NNODES": size,
            "NODE_RANK": rank,
            "RANK": rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
        }


def _as_one_step(rank: str, size: str, names: list[str]) -> dict[str, str]:
    """Return srun's variables as if the gang were one step.

    In an uneven gang each group of nodes is a separate step, and Slurm counts ranks from 0 in each.
    """
    nodes = ",".join(names)
    return {
        "SLURM_PROCID": rank,
        "SLURM_NTASKS": size,
        "SLURM_NPROCS": size,
        "SLURM_NODEID": rank,
        "SLURM_NNODES": size,
        "SLURM_LOCALID": "0",
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_STEP_NUM_NODES": size,
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": size,
    }


def _address(name: str) -> str:
    """Return the first node's name if it resolves, else its address as srun gives it."""
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    return name
