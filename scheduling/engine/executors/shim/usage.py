"""Samples a program's use of CPUs, memory and GPUs, in a file of bounded size.

Each sample rewrites `usage.<rank>.json` in the lease's folder. A gang has one file per node:

    {"version": 1, "rank": 0, "cpus": 8, "gpus": 2, "gpu_state": "ok", "gpu_mib": 81559,
     "rows": [[end_ms, cpu_ms, memory, memory_peak, [busy, ...], [used_mib, ...]], ...]}

Times and CPU time are in milliseconds since the program's start, by a monotonic clock. A row covers
the time since the previous one. `memory` and `memory_peak` are the mean and maximum of the
processes' resident memory in bytes. `busy` is each GPU's mean utilisation in per mille, `used_mib`
its maximum memory. Values that were not read are null; `busy` and `used_mib` are empty if no GPU
can be read. `gpu_state` is defined by `gpus.GpuAsker`.
"""

import contextlib
import json
import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .files import number, write_text
from .gpus import GpuAsker, GpuReading
from .program import program_environment

VERSION = 1
FIRST_S, EVERY_S, SELDOM_S = 1.0, 10.0, 80.0
MOST_ROWS = 240
# The maximum number of rows of all ranks together, because a page reads all of them; the minimum
# number per rank.
GANG_ROWS, LEAST_ROWS = 960, 40
ANSWER_LOOK_S = 0.25

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Indices in /proc/PID/stat, from the third field on: parent, four CPU times, resident pages.
_PARENT, _TIMES, _RESIDENT = 1, slice(11, 15), 21


def rows_of_each(ranks: int) -> int:
    """Return how many rows each rank keeps in a gang of `ranks`."""
    return max(LEAST_ROWS, min(MOST_ROWS, GANG_ROWS // max(1, ranks)))


class Usage:
    """Samples the processes below this one. Create it before this process adopts orphans."""

    def __init__(
        self, folder: Path, spec: Mapping[str, Any], *, rank: int = 0, ranks: int = 1
    ) -> None:
        path = f"{spec.get('tools_path') or os.defpath}{os.pathsep}{os.defpath}"
        every_s = number(spec.get("usage_every_s"), EVERY_S)
        environment = program_environment(spec)
        self._file = folder / f"usage.{rank}.json"
        self._rank = rank
        self._gpus = GpuAsker(environment, path)
        self._cpus = _usable_cpus()
        self._course = SampleCourse(rows_of_each(ranks), every_s)
        self._meter = CpuMeter()
        self._gpu_mib: int | None = None
        self._before_s = _children_s()
        self._every_s = every_s
        self._began = time.monotonic()
        self._sample_at = self._look_at = self._began + min(FIRST_S, every_s)

    def tick(self) -> None:
        """Sample if a sample is due. Errors are ignored, so that no job ends because of one."""
        now = time.monotonic()
        if now < self._look_at:
            return
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._look(now)

    def finish(self) -> None:
        """Write the last sample, once all processes have ended and were waited for."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            self._take_answer()
            self._gpus.close()
            self._sample(time.monotonic(), None)
            self._write()

    def _look(self, now: float) -> None:
        self._look_at = min(self._sample_at, now + ANSWER_LOOK_S)
        changed = self._take_answer()
        if now >= self._sample_at:
            changed = True
            # The next sample is due at the next multiple of the step, even if this sample is late.
            step_s = min(self._course.step_ms / 1000, max(SELDOM_S, self._every_s))
            steps = int((now - self._began) / step_s) + 1
            self._sample_at = self._began + steps * step_s
            self._sample(now, family(os.getpid()))
            self._gpus.ask()
        if changed:
            self._write()

    def _sample(self, now: float, living: "Family | None") -> None:
        # Count the reaped processes first, to the microsecond; then the running ones.
        ended_s = _children_s() - self._before_s
        living_s = living.cpu_s if living else 0.0
        cpu_s = self._meter.reads(ended_s + living_s)
        memory = living.resident_bytes if living else None
        self._course.add(int((now - self._began) * 1000), int(cpu_s * 1000), memory)

    def _take_answer(self) -> bool:
        readings = self._gpus.answer()
        if readings is None:
            return False
        self._course.add_gpus(readings)
        totals = [one.total_mib for one in readings if one.total_mib is not None]
        self._gpu_mib = max(totals, default=self._gpu_mib)
        return True

    def _write(self) -> None:
        facts: dict[str, Any] = {
            "version": VERSION,
            "rank": self._rank,
            "cpus": self._cpus,
            "gpus": self._gpus.gpus,
            "gpu_state": self._gpus.state,
            "gpu_mib": self._gpu_mib,
            "rows": [row.said() for row in self._course.rows],
        }
        write_text(self._file, json.dumps(facts, separators=(",", ":")))


class CpuMeter:
    """Corrects readings of total CPU time, which may fall, so that the sum never falls.

    A reading is too low if a process ends after its parent was read and before it was read itself.
    The next reading includes its time again, in the parent's. Readings stay lower if a parent
    ignores its children's ends, because the kernel then drops their time. The usage known so far is
    kept, and the sum continues from there. Two consecutive readings that each missed a process look
    the same: then the time that the first one missed counts twice.
    """

    def __init__(self) -> None:
        self._most = self._kept = 0.0
        self._fell_to: float | None = None

    def reads(self, cpu_s: float) -> float:
        """Take a reading, in seconds; return the time used so far."""
        so_far = cpu_s + self._kept
        if so_far >= self._most:
            self._most, self._fell_to = so_far, None
        elif self._fell_to is None:
            self._fell_to = so_far
        else:
            self._kept += self._most - self._fell_to
            self._most += max(0.0, so_far - self._fell_to)
            self._fell_to = None
        return self._most


class SampleRow:
    """The samples of a period; `end_ms` and `cpu_ms` count from the start."""

    def __init__(self, end_ms: int, cpu_ms: int) -> None:
        self.end_ms, self.cpu_ms = end_ms, cpu_ms
        self.memory: list[int] = [0, 0, 0]  # memory in bytes: count, sum, maximum
        self.busy: list[list[float]] = []  # utilisation of each GPU: count and sum
        self.used_mib: list[int | None] = []

    def merge(self, later: "SampleRow") -> None:
        self.end_ms, self.cpu_ms = later.end_ms, later.cpu_ms
        count, total, most = later.memory
        self.memory = [self.memory[0] + count, self.memory[1] + total, max(self.memory[2], most)]
        for place, (times, busy) in enumerate(later.busy):
            self._see(place, times, busy, later.used_mib[place])

    def add_gpus(self, readings: Sequence[GpuReading]) -> None:
        for place, one in enumerate(readings):
            self._see(place, int(one.busy is not None), one.busy or 0.0, one.used_mib)

    def _see(self, place: int, times: float, busy: float, used_mib: int | None) -> None:
        if place == len(self.busy):
            self.busy.append([0, 0.0])
            self.used_mib.append(None)
        self.busy[place][0] += times
        self.busy[place][1] += busy
        held = [one for one in (self.used_mib[place], used_mib) if one is not None]
        self.used_mib[place] = max(held, default=None)

    def said(self) -> list[Any]:
        count, total, most = self.memory
        busy = [round(10 * held / times) if times else None for times, held in self.busy]
        memory = [total // count, most] if count else [None, None]
        return [self.end_ms, self.cpu_ms, *memory, busy, self.used_mib]


class SampleCourse:
    """Rows from the start until now. If there are too many, neighbouring rows are merged."""

    def __init__(self, most: int, every_s: float = EVERY_S) -> None:
        self.rows: list[SampleRow] = []
        self.step_ms = max(1, int(every_s * 1000))
        self._most = most

    def add(self, end_ms: int, cpu_ms: int, memory: int | None) -> None:
        """Add a sample of processes.

        The sample is merged into the last row until this row covers a whole step, or if both end in
        the same millisecond.
        """
        row = SampleRow(end_ms, cpu_ms)
        if memory is not None:
            row.memory = [1, memory, memory]
        if self.rows and (self._is_open() or end_ms <= self.rows[-1].end_ms):
            self.rows[-1].merge(row)
        else:
            self.rows.append(row)
        while len(self.rows) > self._most:
            self._halve()

    def add_gpus(self, readings: Sequence[GpuReading]) -> None:
        if self.rows:
            self.rows[-1].add_gpus(readings)

    def _is_open(self) -> bool:
        begin_ms = self.rows[-2].end_ms if len(self.rows) > 1 else 0
        # Accept samples that come a little late.
        return self.rows[-1].end_ms - begin_ms < self.step_ms * 3 // 4

    def _halve(self) -> None:
        for row, later in zip(self.rows[::2], self.rows[1::2], strict=False):
            row.merge(later)
        self.rows = self.rows[::2]
        self.step_ms *= 2


class Family(NamedTuple):
    """The processes below a process: their number, CPU time and resident memory.

    The CPU time includes that of ended children. Shared pages count once for each process.
    `resident_bytes` is None if all processes are ending: their memory is released already.
    """

    processes: int
    cpu_s: float
    resident_bytes: int | None


def family(root: int) -> Family:
    """Sum /proc over the processes below `root`, without `root`."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names only, many of them
        if not entry.isdecimal():
            continue
        fields = _fields(entry)
        if fields:
            children.setdefault(int(fields[_PARENT]), []).append(int(entry))
    # Read each process after its parent, whatever their pids. A child that ends meanwhile is missed
    # once; in the other order, its time would count twice: its own, and within its parent's.
    todo = list(children.get(root, ()))
    count = ticks = pages = 0
    while todo:
        pid = todo.pop()
        todo += children.get(pid, ())
        if fields := _fields(str(pid)):
            count += 1
            ticks += sum(map(int, fields[_TIMES]))
            pages += int(fields[_RESIDENT])
    # An ending process releases its pages, then is a zombie; a running process has some pages.
    return Family(count, ticks / _TICKS_S, pages * _PAGE_BYTES or None)


def _fields(pid: str) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third on; empty if it is gone."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        # A process name may contain anything, so parse after the last bracket.
        return os.read(descriptor, 4096).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(descriptor)


def _usable_cpus() -> int:
    """Return the number of CPUs that the program may use.

    If a Slurm job is not bound to CPUs, return the number that Slurm allocated on the node.
    """
    own = len(os.sched_getaffinity(0))
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return min(own, max(1, int(given))) if given.isdecimal() else own


def _children_s() -> float:
    """Return the CPU seconds of all ended and reaped processes below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
