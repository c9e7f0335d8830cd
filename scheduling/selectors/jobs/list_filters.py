"""The filter of a list of jobs."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduling.models import Job
from scheduling.requests.job_filters import OLDEST, JobQuery

ENDED = (Job.State.SUCCEEDED, Job.State.FAILED, Job.State.CANCELLED)


@dataclass(frozen=True, slots=True)
class JobListFilter:
    """The filter of a job list; empty values do not filter.

    `tenants`: None for all tenants; the caller has checked that the viewer may see them. `text`: a
    part of a job's name. `phases` are those of `scheduling.selectors.jobs.phases`; `states` are
    those in the database. `submitter`: a person's id. `since` and `until` bound the submission, in
    pool time; `until` is exclusive. A job must have all `tags`. `before`: the last id of the
    previous page, in either order. `folds_sweeps`: leave out jobs that wait for their turn in a
    sweep.
    """

    tenants: Collection[int] | None
    states: Collection[str] = ()
    pool: str = ""
    text: str = ""
    before: int | None = None
    phases: Collection[str] = ()
    submitter: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    exit_code: int | None = None
    tags: Collection[str] = ()
    oldest_first: bool = False
    folds_sweeps: bool = False

    @property
    def order(self) -> str:
        return "id" if self.oldest_first else "-id"

    @property
    def ended_states(self) -> list[str]:
        return [
            state
            for state in ENDED
            if (not self.states or state in self.states)
            and (not self.phases or state in self.phases)
        ]

    @property
    def is_by_key(self) -> bool:
        """Return whether ended jobs are read by their keys, because no other index fits."""
        narrow = (self.submitter, self.since, self.until, self.exit_code)
        has_more = bool(self.pool or self.text or self.tags) or any(
            one is not None for one in narrow
        )
        is_of_many = self.tenants is None or len(self.tenants) > 1
        has_states = bool(self.states or self.phases)
        return bool(self.ended_states) and (has_more or (is_of_many and has_states))


def list_filter(query: JobQuery, tenants: Collection[int] | None, **more: Any) -> JobListFilter:
    """Return the filter of a query for these tenants; `more` are further fields."""
    return JobListFilter(
        tenants=tenants,
        text=query.text,
        since=query.since,
        until=query.until,
        exit_code=query.exit_code,
        tags=query.tags,
        oldest_first=query.sort == OLDEST,
        **more,
    )
