"""Short use of held GPUs: part e of promised starts."""

from collections.abc import Collection

from evenshare_core.domain.jobs import Job
from evenshare_core.policies.evenshare.progress import BACKFILLED, PickState, RoundProgress
from evenshare_core.policies.evenshare.promises import StartPromise


class Backfilling:
    """The part of a round that lends held GPUs, after all other rules."""

    def __init__(self, progress: RoundProgress, rows: Collection[StartPromise]) -> None:
        self._progress, self._pool, self._rows = progress, progress.pool, rows
        self._usable: dict[str, dict[int, int]] = {}  # held GPUs by type and node

    @property
    def is_possible(self) -> bool:
        """Whether promises hold free GPUs."""
        return any(part.held for row in self._rows for part in row.parts.values())

    def backfill(self, job: Job, gpu_type: str) -> bool:
        """Give a waiting job GPUs of a node, some of them held, until a promise needs these."""
        usable = self._usable.get(gpu_type)
        if usable is None:
            usable = self._usable[gpu_type] = self._usable_gpus(gpu_type)
        free = self._progress.free_by_type[gpu_type]
        left = free.available.free
        rooms = [(left[node] + gpus, node) for node, gpus in usable.items() if gpus]
        enough = [row for row in rooms if row[0] >= job.gpus]
        if not enough:
            return False
        _, node = min(enough)
        needed = max(0, job.gpus - left[node])
        usable[node] -= needed
        free.hide(node, -needed)
        for row in sorted(self._lenders(gpu_type), key=lambda row: row.order, reverse=True):
            part = row.parts.get(node)
            taken = min(needed, part.held) if part is not None else 0
            if part is not None and taken:
                part.held -= taken
                part.pins[job.id] = part.pins.get(job.id, 0) + taken
                needed -= taken
        free.put(((node, job.gpus),))
        self._progress.nominate(job)
        self._progress.entries[job.id].state = PickState.PROMISED
        self._progress.give(job, gpu_type, ((node, job.gpus),), BACKFILLED)
        return True

    def _lenders(self, gpu_type: str) -> list[StartPromise]:
        """Return the promises that need their GPUs only after the minimum runtime."""
        from_us = self._pool.at_us + self._progress.options.min_runtime_us
        return [
            row
            for row in self._rows
            if row.gpu_type == gpu_type and row.due_us > self._pool.at_us and row.due_us >= from_us
        ]

    def _usable_gpus(self, gpu_type: str) -> dict[int, int]:
        usable: dict[int, int] = {}
        for row in self._lenders(gpu_type):
            for node, part in row.parts.items():
                usable[node] = usable.get(node, 0) + part.held
        return usable
