"""A watch of a partition, and the folder that stores it so that it can be continued.

FOLDER/observed.csv    every observed job, as it was last seen
FOLDER/looks.csv       the times of polls, with the running and queued jobs
"""

import csv
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from evenshare_core.csv_cells import plain_cell, write_csv
from evenshare_core.domain.plurals import plural
from evenshare_core.simulation.shadow import Watch
from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.slurm.commands import Slurm
from scheduling.engine.executors.slurm.observation import (
    ObservedRow,
    join,
    look,
    observed_jobs,
    observed_nodes,
)
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.selectors import stored_texts as texts

OBSERVED, LOOKS = "observed.csv", "looks.csv"
OBSERVED_COLUMNS = (
    "job", "tenant", "state", "gpus", "gpu_type", "submitted", "ready", "started", "ended",
    "limit_minutes", "nodes", "last_seen", "is_lost",
)  # fmt: skip # a table
LOOK_COLUMNS = ("at", "running", "queued", "gpus_held")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class PartitionLook:
    """The result of a poll; numbers of GPUs are those that jobs requested."""

    at: int
    running: int
    queued: int
    gpus_held: int


@dataclass
class PartitionWatch:
    """The observed state of a partition. It is stored if a `folder` is given.

    `tenant` is `account` or `user`. `names` maps Slurm's names of GPU types to ours.
    """

    options: SlurmOptions
    folder: Path | None = None
    tenant: str = "account"
    names: Mapping[str, str] = field(default_factory=dict)
    rows: dict[tuple[str, int], ObservedRow] = field(default_factory=dict)
    looks: list[PartitionLook] = field(default_factory=list)
    failed: int = 0
    clock: Callable[[], float] = time.time

    @property
    def slurm(self) -> Slurm:
        """The cluster, queried through its tools."""
        return Slurm(self.options)

    @property
    def is_open(self) -> bool:
        """Whether the partition was polled."""
        return bool(self.looks)

    def load(self) -> None:
        """Continue with the stored watch, if there is one.

        Raises:
            ExecutorError: a file in the folder was not written by a watch.
            OSError: the watch cannot be read.
        """
        if self.folder is None or not (self.folder / OBSERVED).exists():
            return
        try:
            self.rows = {row.key: row for row in _read_rows(self.folder / OBSERVED)}
            self.looks = list(_read_looks(self.folder / LOOKS))
        except (ValueError, KeyError, TypeError) as error:
            text = texts.NO_WATCH.format(folder=self.folder, error=error)
            raise ExecutorError(text) from error

    def look(self) -> PartitionLook:
        """Poll once, and store the result.

        Raises:
            ExecutorError: Slurm does not answer; the known state is kept.
        """
        at = int(self.clock())
        seen = look(self.slurm, at, tenant=self.tenant)
        self.rows = join(self.rows, seen)
        rows = [row for row in self.rows.values() if not row.is_over and row.gpus]
        running = [row for row in rows if row.started is not None]
        queued = sum(row.started is None and row.ready is not None for row in rows)
        now = PartitionLook(at, len(running), queued, sum(row.gpus for row in running))
        self.looks.append(now)
        self._save()
        return now

    def watch(self) -> Watch:
        """Return the observations since the first poll, with the present states of the nodes.

        Raises:
            ExecutorError: Slurm does not answer.
        """
        here = frozenset(name for row in self._running() for name in row.nodes)
        nodes = observed_nodes(self.slurm, self.names, here)
        jobs = observed_jobs(self.rows.values(), nodes, self.names)
        span = (self.looks[0].at * SECOND_US, self.looks[-1].at * SECOND_US)
        return Watch(nodes, tuple(jobs), *span)

    def remarks(self) -> list[str]:
        """Return sentences on what could not be observed."""
        rows = self.rows.values()
        gap = max(
            (b.at - a.at for a, b in zip(self.looks, self.looks[1:], strict=False)), default=0
        )
        counted = (
            (self.failed, "Looks that failed"),
            (
                sum(row.is_lost for row in rows),
                "Jobs without an observed end, which count as ended when they were last seen",
            ),
            (sum(not row.gpus for row in rows), "Jobs that request no GPU, which are skipped"),
            (
                sum(row.ready is None and not row.is_over for row in rows),
                "Jobs that are held or wait for other jobs, which are skipped until they may start",
            ),
        )
        longest = f", the longest time between two polls {gap:,} s" if len(self.looks) > 1 else ""
        said = [f"{plural(len(self.looks), 'look')}{longest}."]
        return said + [f"{text}: {count:,}." for count, text in counted if count]

    def _running(self) -> Iterator[ObservedRow]:
        begin = self.looks[0].at
        for row in self.rows.values():
            if row.started is not None and (row.ended is None or row.ended > begin):
                yield row

    def _save(self) -> None:
        if self.folder is None:
            return
        rows = [_cells(row) for row in self.rows.values()]
        write_file(self.folder / OBSERVED, write_csv(OBSERVED_COLUMNS, rows))
        looks = [(one.at, one.running, one.queued, one.gpus_held) for one in self.looks]
        write_file(self.folder / LOOKS, write_csv(LOOK_COLUMNS, looks))


def keep_watching(
    watch: PartitionWatch,
    *,
    seconds: float,
    interval_s: float,
    on_look: Callable[[PartitionLook], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Poll now and every `interval_s` for `seconds`; skip failed polls.

    Raises:
        ExecutorError: the first poll fails.
    """
    begin = time.monotonic()
    number = 0
    while True:
        try:
            on_look(watch.look())
        except ExecutorError as error:
            if not watch.is_open:
                raise
            watch.failed += 1
            log.warning("shadow.look_failed", error=str(error))
        # If a poll takes too long, the polls that it delayed are skipped.
        number = max(number + 1, int((time.monotonic() - begin) / interval_s))
        if number * interval_s > seconds:
            return
        sleep(max(0.0, begin + number * interval_s - time.monotonic()))


def write_file(path: Path, text: str) -> None:
    """Write a file of a watch atomically: readers find the old text or the new text."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)  # noqa: PTH105 - as one step, over what is there


def _cells(row: ObservedRow) -> tuple[object, ...]:
    values = {name: getattr(row, name) for name in OBSERVED_COLUMNS}
    return tuple((values | {"nodes": " ".join(row.nodes), "is_lost": int(row.is_lost)}).values())


def _read_rows(path: Path) -> Iterator[ObservedRow]:
    for cells in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
        instants = {
            name: int(cells[name]) if cells[name] else None
            for name in ("ready", "started", "ended")
        }
        yield ObservedRow(
            job=plain_cell(cells["job"]),
            tenant=plain_cell(cells["tenant"]),
            state=cells["state"],
            gpus=int(cells["gpus"]),
            gpu_type=plain_cell(cells["gpu_type"]),
            submitted=int(cells["submitted"]),
            limit_minutes=int(cells["limit_minutes"]),
            nodes=tuple(plain_cell(cells["nodes"]).split()),
            last_seen=int(cells["last_seen"]),
            is_lost=cells["is_lost"] == "1",
            **instants,
        )


def _read_looks(path: Path) -> Iterator[PartitionLook]:
    for cells in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
        yield PartitionLook(*(int(cells[name]) for name in LOOK_COLUMNS))
