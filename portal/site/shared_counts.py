"""Shared counters of several web processes: /metrics of any process returns the sums of all.

Each process holds a place in a shared folder, and counts into the place's files. The next process
that takes the place continues, so no sum ever falls while the portal runs. There are as many files
as places. The parent of the web processes empties the folder before their start.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

FOLDER, PREFIX = "web", "evenshare_"
# More places than web processes: replaced processes still hold theirs until they end.
PLACES = 64


class NoPlaceError(Exception):
    """More processes than places."""


_held: list[int] = []


def shared_folder() -> Path | None:
    """Return the folder of the counts, or None if this process does not share its counts."""
    return Path(os.environ["EVENSHARE_RUN_DIR"]) / FOLDER if _held else None


def share() -> None:
    """Take a place before anything is counted; without a runtime folder, counts are per process."""
    run = os.environ.get("EVENSHARE_RUN_DIR")
    if not run or _held:
        return
    folder = Path(run) / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = _take_place(folder)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: place)  # type: ignore[no-untyped-call]  # untyped in the library


def _take_place(folder: Path) -> str:
    for number in range(1, PLACES + 1):
        file = os.open(folder / f"place-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        os.ftruncate(file, 0)
        os.write(file, str(os.getpid()).encode())
        _held.append(file)  # held until this process ends, however it ends
        return str(number)
    raise NoPlaceError(f"{PLACES} processes count in {folder} already")


@contextmanager
def kept(name: str, own: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a dictionary that all web processes share, under a lock; `own` without a folder.

    The result of the block is written as a whole, or not at all if the block raises.
    """
    folder = shared_folder()
    if folder is None:
        yield own
        return
    file, lock = folder / f"{name}.json", folder / f"{name}.lock"
    with lock.open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        state = json.loads(file.read_text()) if file.exists() else {}
        yield state
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(state))
        fresh.replace(file)


class WebProcesses(Collector):
    """Memory and processor time of each web process, by its place."""

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: a registration reads no folder."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of every place that a living process holds."""
        memory = GaugeMetricFamily(
            PREFIX + "web_resident_bytes", "Memory of a web process.", labels=["process"]
        )
        spent = CounterMetricFamily(
            PREFIX + "web_cpu_seconds", "Processor time of a web process.", labels=["process"]
        )
        folder = shared_folder()
        for file in sorted(folder.glob("place-*")) if folder else ():
            number = file.name.removeprefix("place-")
            try:
                pid = int(file.read_text())
                resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except (OSError, ValueError):
                continue  # it has ended, or this system lacks the information
            memory.add_metric([number], resident * os.sysconf("SC_PAGE_SIZE"))
            ticks = int(fields[11]) + int(fields[12])
            spent.add_metric([number], ticks / os.sysconf("SC_CLK_TCK"))
        yield from (memory, spent)
