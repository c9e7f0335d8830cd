"""Short use of held GPUs: part e of promised starts."""

from evenshare_core.domain.jobs import Job
from evenshare_core.policies.evenshare.progress import BACKFILLED, PickState, RoundProgress
from evenshare_core.policies.evenshare.promises import StartPromise, bequeath


class Backfilling:
    """The part of a round that lends held GPUs, after all other rules.

    `rows`: the promises by job. The promise of a job that starts here is removed.
    """

    def __init__(self, progress: RoundProgress, rows: dict[int, StartPromise]) -> None:
        self._progress, self._pool, self._rows = progress, progress.pool, rows
        self._usable: dict[str, dict[int, int]] = {}  # held GPUs by type and node

    @property
    def is_possible(self) -> bool:
        """Whether promises hold free GPUs."""
        return any(part.held for row in self._rows.values() for part in row.parts.values())

    def backfill(self, job: Job, gpu_type: str) -> bool:
        """Give a waiting job GPUs of a node, some of them held, until a promise needs these.

        A job that has a promise itself gets them only if it may keep them for half a lease.
        """
        own = self._rows.get(job.id)
        usable = self._usable.get(gpu_type) if own is None else self._usable_gpus(gpu_type, own)
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
        lenders = self._lenders(gpu_type, own)
        for row in sorted(lenders, key=lambda row: row.order, reverse=True):
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
        if own is not None:
            self._end(own)
        return True

    def _end(self, own: StartPromise) -> None:
        """End the promise of a job that starts here; promises behind it inherit its GPUs."""
        del self._rows[own.job]
        bequeath(own, self._rows.values(), {})
        self._usable.clear()

    def _lenders(self, gpu_type: str, own: StartPromise | None) -> list[StartPromise]:
        """Return the promises that need their GPUs late enough, except the job's `own`."""
        pool, least_us = self._pool, self._progress.options.min_runtime_us
        if own is not None:
            least_us = max(least_us, pool.lease_us // 2)
        return [
            row
            for row in self._rows.values()
            if row is not own
            and row.gpu_type == gpu_type
            and row.due_us > pool.at_us
            and row.due_us >= pool.at_us + least_us
        ]

    def _usable_gpus(self, gpu_type: str, own: StartPromise | None = None) -> dict[int, int]:
        usable: dict[int, int] = {}
        for row in self._lenders(gpu_type, own):
            for node, part in row.parts.items():
                usable[node] = usable.get(node, 0) + part.held
        return usable
