"""The promised start of a waiting job: the latest time of its start, and the GPUs kept for it.

A policy reads its promises from its memory
(`evenshare_core.policies.policy.Policy.promised_starts`). So pages, the API and metrics need no
code for single policies.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot


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


class PromiseCounts(NamedTuple):
    """The promised starts of a round, by outcome.

    `made`: new promises. `kept`: jobs that started in time. `late`: jobs that started later.
    `excused`: promises that ended without a start, although the job still waits.
    """

    made: int
    kept: int
    late: int
    excused: int


def latest_start_us(due_us: int, after_us: int, round_us: int) -> int:
    """Return the first round from `due_us` on that follows the round at `after_us`."""
    round_us = max(1, round_us)
    return max(-(-due_us // round_us) * round_us, after_us + round_us)


def count_promises(
    before: Iterable[PromisedStart],
    after: Iterable[PromisedStart],
    snapshot: Snapshot,
    decision: Decision,
) -> PromiseCounts:
    """Compare the promises that a round found and left; cancelled jobs do not count.

    A job whose promise ended may get a new one in the same round.
    """
    old, new = ({(row.job, row.made_us): row for row in rows} for rows in (before, after))
    waiting = {job.id for job in snapshot.jobs} - {lease.job for lease in snapshot.leases}
    started = waiting & {grant.job for grant in decision.grants}
    due_us = {row.job: row.due_us for row in (*new.values(), *old.values())}
    lateness_us = [snapshot.at_us - due_us[job] for job in started & due_us.keys()]
    late = sum(one >= max(1, snapshot.round_us) for one in lateness_us)
    return PromiseCounts(
        made=len(new.keys() - old.keys()),
        kept=len(lateness_us) - late,
        late=late,
        excused=sum(job in waiting - started for job, _ in old.keys() - new.keys()),
    )
