"""The phase of a job: its state, but with starting jobs distinguished from running jobs.

A round's grant makes a job `running` at once, because it holds GPUs from then on. Its program
starts when the pool's executor reports so, which may take a while on a cluster.
"""

from collections.abc import Collection, Iterable, Mapping

from django.db.models import Exists, OuterRef, Q

from scheduling.models import Job, Lease

STARTING = "starting"
# In the order of a job's life.
PHASES = (Job.State.PENDING.value, STARTING, *Job.State.values[1:])
# Synonyms that pages and users use.
PHASE_SYNONYMS = {
    "queued": Job.State.PENDING.value,
    "waiting": Job.State.PENDING.value,
    "done": Job.State.SUCCEEDED.value,
    "canceled": Job.State.CANCELLED.value,
}
_BEGUN = (Lease.State.RUNNING, Lease.State.STOPPING)
_NOT_BEGUN = (Lease.State.WAITING, Lease.State.LAUNCHING)


def phase_named(text: str) -> str | None:
    """Return the phase that a word names, in any letter case, or None if it names no phase."""
    name = text.strip().lower()
    name = PHASE_SYNONYMS.get(name, name)
    return name if name in PHASES else None


def phase_of(state: str, leases: Collection[str]) -> str:
    """Return a job's state, or `STARTING` if none of its leases has a running program yet.

    `leases`: the states of its live leases; a job that is being moved has two, one of which runs.
    """
    is_starting = state == Job.State.RUNNING and leases and all(one in _NOT_BEGUN for one in leases)
    return STARTING if is_starting else str(state)


def is_starting() -> Q:
    """Return the condition of `STARTING` for a query of jobs."""
    leases = Lease.objects.filter(job=OuterRef("pk"), state__in=_NOT_BEGUN)
    return Q(state=Job.State.RUNNING) & Q(Exists(leases)) & ~Q(has_begun())


def has_begun(job: str = "pk") -> Exists:
    """Return the condition that a job has a running program; `job` is the column of its id."""
    return Exists(Lease.objects.filter(job=OuterRef(job), state__in=_BEGUN))


def phases(jobs: Iterable[Job]) -> Mapping[int, str]:
    """Return the phase of each job, by its id. A single query, none if no job runs."""
    shown = list(jobs)
    running = [job.pk for job in shown if job.state == Job.State.RUNNING]
    starting: set[int] = set()
    if running:
        starting.update(
            Job.objects.filter(is_starting(), pk__in=running).values_list("pk", flat=True)
        )
    return {job.pk: STARTING if job.pk in starting else str(job.state) for job in shown}
