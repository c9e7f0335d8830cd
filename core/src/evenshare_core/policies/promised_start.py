"""The promised start of a waiting job: the latest time of its start, and the GPUs kept for it.

A policy reads its promises from its memory
(`evenshare_core.policies.policy.Policy.promised_starts`). So pages, the API and metrics need no
code for single policies.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import ChangeKind, Snapshot
from evenshare_core.fairness.promised_starts import jobs_of_lost_places
from evenshare_core.money.fixed_point import term_charge


class PromisedStart(NamedTuple):
    """The promise of a start that the round at `made_us` made.

    The job starts in the first round from `due_us` on, at the latest. `held`: free GPUs that are
    held back for it, by node. `pinned`: the jobs whose leases end by then, because it gets their
    GPUs.
    """

    job: int
    gpu_type: str
    gpus: int
    due_us: int
    made_us: int
    held: Mapping[int, int]
    pinned: frozenset[int]


class LateStart(NamedTuple):
    """A promise whose job still waited after its promised latest start.

    `until_us`: when the job started or, without `has_started`, stopped waiting.
    """

    job: int
    tenant: int
    gpu_type: str
    gpus: int
    made_us: int
    latest_us: int
    until_us: int
    has_started: bool

    def credit_micro(self, rate_micro: int) -> int:
        """Return the credit at a rate per GPU-hour, in micro-credits."""
        return late_credit_micro(self.gpus, rate_micro, self.until_us - self.latest_us)


class PromiseCounts(NamedTuple):
    """The promised starts of a round, by outcome.

    `made`: new promises. `kept`: jobs that started in time. `late`: as in `late_starts`. `excused`:
    promises that ended without a start, although the job still waits, and late starts of jobs whose
    node was lost.
    """

    made: int
    kept: int
    late: int
    excused: int


def latest_start_us(due_us: int, after_us: int, round_us: int) -> int:
    """Return the first round from `due_us` on that follows the round at `after_us`."""
    round_us = max(1, round_us)
    return max(-(-due_us // round_us) * round_us, after_us + round_us)


def late_credit_micro(gpus: int, rate_micro: int, late_us: int) -> int:
    """Return gpus x rate per GPU-hour x time, to the nearest micro-credit, halves up.

    Raises:
        ValueError: a factor is negative.
    """
    return term_charge(gpus, rate_micro, late_us, 0)[0]


def new_promises(
    before: Iterable[PromisedStart], after: Iterable[PromisedStart]
) -> list[PromisedStart]:
    """Return the promises that a round made; a job may replace a promise that ended."""
    old = {(row.job, row.made_us) for row in before}
    return [row for row in after if (row.job, row.made_us) not in old]


def excused_promises(
    before: Iterable[PromisedStart],
    after: Iterable[PromisedStart],
    snapshot: Snapshot,
    decision: Decision,
) -> list[PromisedStart]:
    """Return the promises that a round ended although their job still waits."""
    granted = {grant.job for grant in decision.grants}
    held = {lease.job for lease in snapshot.leases}
    waiting = {job.id for job in snapshot.jobs} - held - granted
    new = {(row.job, row.made_us) for row in after}
    return [row for row in before if row.job in waiting and (row.job, row.made_us) not in new]


def late_starts(
    before: Iterable[PromisedStart], snapshot: Snapshot, decision: Decision
) -> list[LateStart]:
    """Return the promises from before a round that ended late, in the order of `before`.

    A promise ends with the start of its job, in the round that grants the lease. It also ends when
    the job stops waiting, for example because it was cancelled. It is excused if a node of its
    place is lost, or if it ends while its job still waits.
    """
    late = _overdue_ends(before, snapshot, decision)
    lost = jobs_of_lost_places(snapshot, decision) if late else set()
    return [row for row in late if row.job not in lost]


def _overdue_ends(
    before: Iterable[PromisedStart], snapshot: Snapshot, decision: Decision
) -> list[LateStart]:
    """Return the promises whose job started, or stopped waiting, after its latest start."""
    tenants = {job.id: job.tenant for job in snapshot.jobs}
    started = {grant.job for grant in decision.grants} & tenants.keys()
    started -= {lease.job for lease in snapshot.leases}
    gone = {row.job: row for row in snapshot.changes if row.kind is ChangeKind.INACTIVE}
    late = []
    for row in before:
        if row.job in started:
            tenant, until_us = tenants[row.job], snapshot.at_us
        elif row.job in gone and row.job not in tenants:
            tenant, until_us = gone[row.job].tenant, gone[row.job].at_us
        else:
            continue
        latest_us = latest_start_us(row.due_us, row.made_us, snapshot.round_us)
        if until_us > latest_us:
            late.append(
                LateStart(
                    *(row.job, tenant, row.gpu_type, row.gpus, row.made_us),
                    *(latest_us, until_us, row.job in started),
                )
            )
    return late


def count_promises(
    before: Sequence[PromisedStart],
    after: Sequence[PromisedStart],
    snapshot: Snapshot,
    decision: Decision,
) -> PromiseCounts:
    """Compare the promises that a round found and left.

    A job whose promise ended may get a new one in the same round. A job that stopped waiting in
    time does not count.
    """
    old = {(row.job, row.made_us) for row in before}
    new = {(row.job, row.made_us) for row in after}
    waiting = {job.id for job in snapshot.jobs} - {lease.job for lease in snapshot.leases}
    started = waiting & {grant.job for grant in decision.grants}
    late = late_starts(before, snapshot, decision)
    overdue = {row.job for row in _overdue_ends(before, snapshot, decision) if row.has_started}
    promised = {job for job, _ in old | new}
    return PromiseCounts(
        made=len(new_promises(before, after)),
        kept=len(started & promised - overdue),
        late=len(late),
        excused=len(excused_promises(before, after, snapshot, decision))
        + len(overdue - {row.job for row in late}),
    )
