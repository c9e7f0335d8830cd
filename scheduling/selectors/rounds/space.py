"""The space that the bytes of rounds take per day, in the database and in files."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from django.db.models import Count, Max, Min, Sum

from scheduling.models import RoundArchive, RoundArchiving
from tenants.sql import fetch_rows

_DATABASE = """
SELECT day, count(DISTINCT number), sum(bytes) FROM (
    SELECT day, number, octet_length(snapshot)::bigint + octet_length(decision) AS bytes
    FROM scheduling_roundblob WHERE pool_id = %(pool)s
    UNION ALL
    SELECT day, number, octet_length(data) FROM scheduling_roundbundle WHERE pool_id = %(pool)s
    UNION ALL
    SELECT day, number, octet_length(service) + octet_length(memory)
    FROM scheduling_roundstate WHERE pool_id = %(pool)s AND number > 0
) stored GROUP BY day ORDER BY day
"""
# For all pools by name: problems of files, and of days that could not be moved to files.
_PROBLEMS = """
SELECT p.name, coalesce(g.failure, ''), coalesce(f.count, 0), coalesce(f.problem, '')
FROM scheduling_pool p
LEFT JOIN scheduling_roundarchiving g ON g.pool_id = p.id
LEFT JOIN LATERAL (
    SELECT count(*), min(problem) AS problem FROM scheduling_roundarchive
    WHERE pool_id = p.id AND problem <> '' AND dropped_at IS NULL
) f ON true
WHERE coalesce(g.failure, '') <> '' OR f.count > 0
ORDER BY p.id
"""


@dataclass(frozen=True, slots=True)
class DaySpace:
    """The space of one day of a pool's rounds: bytes in the database, and in files."""

    day: date
    rounds: int
    database: int
    files: int

    @property
    def bytes(self) -> int:
        """The bytes in the database and in files together."""
        return self.database + self.files


@dataclass(frozen=True, slots=True)
class RoundSpace:
    """The space of a pool's stored rounds, newest day first.

    `a_day`: the mean of the whole days, or None if there is none yet. `looked_at`: the last search
    for days that are old enough to move. `failure`: why such a day is still in the database.
    `problems`: a text for each file with a problem.
    """

    days: tuple[DaySpace, ...]
    a_day: int | None
    looked_at: datetime | None
    failure: str
    problems: tuple[str, ...]

    @property
    def database(self) -> int:
        return sum(day.database for day in self.days)

    @property
    def files(self) -> int:
        return sum(day.files for day in self.days)

    @property
    def oldest(self) -> date | None:
        """The oldest day whose rounds can be recomputed."""
        return self.days[-1].day if self.days else None

    def projected(self, keep_days: int) -> int | None:
        """Return the bytes of `keep_days` days at the present mean, or None without a mean."""
        return None if self.a_day is None else self.a_day * keep_days


def round_space(pool_id: int, today: date) -> RoundSpace:
    """Return the space of a pool's stored rounds. Four queries."""
    database = {
        day: (int(rounds), int(size))
        for day, rounds, size in fetch_rows(_DATABASE, {"pool": pool_id})
    }
    kept = RoundArchive.objects.filter(pool_id=pool_id, dropped_at=None)
    files = {
        row["day"]: (int(row["last"] - row["first"] + 1), int(row["size"]))
        for row in kept.values("day")
        .annotate(first=Min("first"), last=Max("last"), size=Sum("bytes"), count=Count("id"))
        .order_by("day")
    }
    days = tuple(_day(day, database, files) for day in sorted({*database, *files}, reverse=True))
    whole = [day.bytes for day in days if day.day != today]
    row = RoundArchiving.objects.filter(pool_id=pool_id).first()
    problems = kept.exclude(problem="").order_by("day", "first")
    return RoundSpace(
        days=days,
        a_day=sum(whole) // len(whole) if whole else None,
        looked_at=row.looked_at if row else None,
        failure=row.failure if row else "",
        problems=tuple(problems.values_list("problem", flat=True)),
    )


def _day(
    day: date, database: Mapping[date, tuple[int, int]], files: Mapping[date, tuple[int, int]]
) -> DaySpace:
    in_database, in_files = database.get(day, (0, 0)), files.get(day, (0, 0))
    return DaySpace(day, max(in_database[0], in_files[0]), in_database[1], in_files[1])


def file_problems() -> list[str]:
    """Return the problems of files of rounds, and of days that could not be moved to files."""
    rows = fetch_rows(_PROBLEMS)
    problems = []
    for pool, failure, count, problem in rows:
        if failure:
            problems.append(f"{pool}: not moved to files, {failure}")
        if count:
            problems.append(f"{pool}: {problem}" + (f" ({count} files)" if count > 1 else ""))
    return problems
