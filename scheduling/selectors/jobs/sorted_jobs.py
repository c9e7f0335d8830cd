"""Lists of ended jobs by a value: GPU-hours received, queue time, or end.

No index has the jobs of any filter by these values. So a list sorts the newest `SORTED_MAX` ended
jobs of its filter, which the index by keys finds. The values of an ended job no longer change.
"""

from dataclasses import dataclass
from typing import NamedTuple

from scheduling.models import Job
from scheduling.selectors.jobs.ended_jobs import find_ended
from scheduling.selectors.jobs.list_filters import JobListFilter
from scheduling.selectors.jobs.lists import rows_of
from tenants.sql import fetch_rows

SORTED_MAX = 10_000
# The values of each order, as whole numbers. A job without a value is not listed: no round has
# counted its GPU-time yet, so that its place would change.
_VALUES = {
    "gpu_hours": "received_gpu_us",
    "queue_time": """(greatest(0, extract(epoch FROM coalesce(first_started_at, ended_at)
        - coalesce(eligible_at, submitted_at))) * 1000000)::bigint""",
    "ended": "(extract(epoch FROM ended_at) * 1000000)::bigint",
}
_SORT = """
SELECT id, value FROM (
    SELECT id, {value} AS value FROM scheduling_job WHERE id = ANY(%(ids)s)
) valued
WHERE value IS NOT NULL AND (%(value)s::bigint IS NULL OR (value, id) < (%(value)s, %(id)s))
ORDER BY value DESC, id DESC LIMIT %(limit)s
"""


class SortMark(NamedTuple):
    """The last job of a page: its value, its id, and the oldest job that the list sorts.

    With this job, pages go on in the set of the first page while other jobs end.
    """

    value: int
    job: int
    oldest: int


@dataclass(frozen=True, slots=True)
class SortedPage:
    """Jobs with the largest values first; `next` is None on the last page."""

    jobs: tuple[Job, ...]
    next: SortMark | None


def list_sorted(
    wanted: JobListFilter, sort: str, *, after: SortMark | None, limit: int
) -> SortedPage:
    """Return a page of ended jobs that match a filter, with tenant and pool.

    Five queries at most, and at most 2 x `SORTED_MAX` rows. A job that ends between two pages of a
    list is on a later page or on none, and moves no other job. This holds until `SORTED_MAX` more
    jobs have ended.
    """
    # Jobs that ended since the first page are among the newest, so twice as many are read.
    ids = find_ended(wanted, limit=SORTED_MAX if after is None else 2 * SORTED_MAX)
    oldest = min(ids, default=0) if after is None else after.oldest
    values = {
        "ids": [one for one in ids if one >= oldest],
        "value": None if after is None else after.value,
        "id": None if after is None else after.job,
        "limit": limit + 1,
    }
    found = fetch_rows(_SORT.format(value=_VALUES[sort]), values)
    page = dict(found[:limit])
    jobs = rows_of(page)
    if len(found) <= limit:
        return SortedPage(jobs, None)
    last, value = found[limit - 1]
    return SortedPage(jobs, SortMark(value, last, oldest))
