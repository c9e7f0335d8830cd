"""The restart budget: how much of a job's time may be lost because its leases end early.

Preemption that pays ends leases before they expire, and each such end costs the job a restart. With
a budget of p percent, all its early ends together cost at most p percent of the time that it has
run. The policy's memory counts them until the job ends. It also counts an end that a limit
withdraws after the decision.

Moves do not count, because other options bound them, and gangs would find no node without them.
An end for a promised start does not count. The promise is made for a time at or after the lease's
expiry, and allows the lease to go on until then. So the restart is the one of the expiry.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from evenshare_core.domain.ids import IdKind, Row
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import JobService
from evenshare_core.fairness.gpu_time import job_received

RESTART_IDS = Row((IdKind.JOB,))  # [job, early ends]


def read_restarts(memory: Mapping[str, Any]) -> dict[int, int]:
    """Return the counted early ends in a policy's memory, by job."""
    return dict(memory.get("restarts", ()))


def restart_rows(restarts: Mapping[int, int], jobs: Iterable[int]) -> list[list[int]]:
    """Return the counted early ends of the jobs that have not ended, as plain JSON by job."""
    active = restarts.keys() & jobs
    return [[job, restarts[job]] for job in sorted(active)]


class RestartBudget:
    """The early ends of jobs up to and including this round."""

    def __init__(
        self, memory: Mapping[str, Any], sums: Mapping[int, JobService], at_us: int, paid_us: int
    ) -> None:
        """`paid_us`: the time that a job runs for each restart; 0 without a budget."""
        self.ends = read_restarts(memory) if paid_us else {}
        self._sums, self._at_us, self._paid_us = sums, at_us, paid_us

    def count(self, job: int) -> None:
        """Count an early end of a job."""
        if self._paid_us:
            self.ends[job] = self.ends.get(job, 0) + 1

    def may_pay(self, lease: Lease) -> bool:
        """Return whether the lease's job has run long enough for one more restart."""
        if not self._paid_us:
            return True
        return job_received(self._sums[lease.job], self._at_us) >= self._price(lease)

    def pays_from(self, lease: Lease) -> int:
        """Return when the lease's job will have run long enough, if it goes on; 0 if it has."""
        if self.may_pay(lease):
            return 0
        row = self._sums[lease.job]
        return row.held_since_us - (row.alloc_gpu_us - self._price(lease)) // row.held

    def _price(self, lease: Lease) -> int:
        """Return the GPU-time that pays for the job's early ends and one more, in GPU-us."""
        return (self.ends.get(lease.job, 0) + 1) * self._paid_us * lease.gpus
