"""Compares the current rows with the last round and returns timed changes (pure functions).

Only states are compared, not messages. The changes turn the sums in `service` into the sums of the
rows, in whatever order events were recorded. Facts that were recorded late count only from the last
round on, because the sums up to that round are final.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Change, ChangeKind, JobService, Service


class JobFacts(NamedTuple):
    """A job that is active now (`ended_us` is None) or ended since the last round."""

    job: Job
    ended_us: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseHold:
    """The period during which a lease holds its GPUs.

    `ended_us` is None while it still holds them.
    """

    job: int
    gpus: int
    started_us: int
    ended_us: int | None
    gpu_type: str


def timed_changes(
    service: Service, jobs: Sequence[JobFacts], holds: Iterable[LeaseHold], at_us: int
) -> list[Change]:
    """Return the changes in (service.at_us, at_us], in order per job.

    `holds` are in order of lease number per job. Jobs that started and ended before `service.at_us`
    and were counted by no round are left out.
    """
    known = {job.job: job for job in service.jobs}
    holds_of: dict[int, list[LeaseHold]] = {}
    for hold in holds:
        holds_of.setdefault(hold.job, []).append(hold)
    changes: list[Change] = []
    for facts in sorted(jobs, key=lambda facts: facts.job.id):
        before = known.get(facts.job.id)
        if before is None and facts.ended_us is not None and facts.ended_us <= service.at_us:
            continue
        # Skip most jobs of a long queue early: known, still active, and without a hold.
        mine = holds_of.get(facts.job.id, [])
        arrived_us = facts.job.submitted_us
        if before is not None and service.at_us < arrived_us <= at_us:
            # It was held and released since the last round, so its first wait is over.
            over = facts._replace(ended_us=arrived_us)
            changes += _job_changes(service.at_us, at_us, over, before, mine)
            before, mine = None, []
        if before is not None and facts.ended_us is None and not mine and not before.held:
            continue
        changes += _job_changes(service.at_us, at_us, facts, before, mine)
    return changes


def _job_changes(
    since_us: int, at_us: int, facts: JobFacts, before: JobService | None, holds: list[LeaseHold]
) -> list[Change]:
    changes: list[Change] = []
    job, clock_us = facts.job, since_us

    def add(
        instant_us: int, kind: ChangeKind, gpus: int = 0, gpu_types: tuple[str, ...] = ()
    ) -> None:
        # Clamp the time to the interval, so that the changes of a job stay in order of time.
        nonlocal clock_us
        clock_us = min(max(instant_us, clock_us), at_us)
        weight = job.weight if kind is ChangeKind.ACTIVE else 1
        changes.append(Change(clock_us, kind, job.tenant, job.id, gpus, gpu_types, weight))

    if before is None:
        add(job.submitted_us, ChangeKind.ACTIVE, job.gpus, job.gpu_types)
    held = before.held if before is not None else 0
    for hold in holds:
        if hold.ended_us is not None and hold.ended_us <= since_us and not held:
            continue  # ended before the last round, which did not count it
        if not held:
            add(hold.started_us, ChangeKind.HOLD, hold.gpus, (hold.gpu_type,))
        held = hold.gpus
        if hold.ended_us is not None:
            add(hold.ended_us, ChangeKind.RELEASE)
            held = 0
    if held and not holds:
        add(since_us, ChangeKind.RELEASE)  # its end was recorded before the last round
    if facts.ended_us is not None:
        if held and holds:
            add(facts.ended_us, ChangeKind.RELEASE)
        add(facts.ended_us, ChangeKind.INACTIVE)
    return changes
