"""Finds ended jobs by any combination of filters, through the index by keys.

Under row security no index can serve an array or a part of a text. So a function of the database
reads the index, and takes the tenants from the scope (docs/adr/0240-lists-of-many-jobs.md).
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from scheduling.models import Pool
from scheduling.selectors.jobs.list_filters import ENDED, JobListFilter
from tenants.sql import fetch_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A job's key names its day, a span of 32 days, and one of 1,024.
SPANS = ((1024, "y"), (32, "m"), (1, "d"))
# Bounds of an open range, in days: the years 1925 to 2149.
FIRST_DAY, LAST_DAY = -16 * 1024, 64 * 1024 - 1
_FIND = "SELECT * FROM evenshare_find_jobs(%s, %s, %s, %s, %s, %s, %s, %s, %s)"


def find_ended(wanted: JobListFilter, *, limit: int) -> list[int]:
    """Return the ids of at most `limit` ended jobs that match, in the order of the list.

    A query for each wanted state, or one for all states, and one if a pool is named.
    """
    keys = [f"t:{tag}" for tag in wanted.tags]
    if wanted.submitter is not None:
        keys.append(f"u:{wanted.submitter}")
    if wanted.exit_code is not None:
        keys.append(f"x:{wanted.exit_code}")
    if wanted.pool:
        pool = Pool.objects.filter(name=wanted.pool).values_list("id", flat=True).first()
        if pool is None:
            return []
        keys.append(f"p:{pool}")
    tenants = None if wanted.tenants is None else list(wanted.tenants)
    states = wanted.ended_states
    ids: list[int] = []
    for state in [""] if len(states) == len(ENDED) else states:
        arguments = [
            tenants,
            [*keys, f"s:{state}"] if state else keys,
            day_keys(wanted.since, wanted.until),
            wanted.text or None,
            wanted.since,
            wanted.until,
            wanted.before,
            limit,
            wanted.oldest_first,
        ]
        ids += [row[0] for row in fetch_rows(_FIND, arguments)]
    return sorted(ids, reverse=not wanted.oldest_first)[:limit]


def day_keys(since: datetime | None, until: datetime | None) -> list[str] | None:
    """Return the keys of the days from `since` to `until`, or None if both are None.

    The fewest spans that cover exactly these days.
    """
    if since is None and until is None:
        return None
    first = FIRST_DAY if since is None else max(FIRST_DAY, (since - EPOCH).days)
    last = LAST_DAY
    if until is not None:
        last = min(LAST_DAY, (until - timedelta(microseconds=1) - EPOCH).days)
    return list(_spans(first, last))


def _spans(first: int, last: int) -> Iterator[str]:
    while first <= last:
        days, kind = next(
            (days, kind) for days, kind in SPANS if first % days == 0 and first + days - 1 <= last
        )
        yield f"{kind}:{first // days}"
        first += days
