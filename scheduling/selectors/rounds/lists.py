"""Pages of rounds, by key."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduling.models import Round
from scheduling.selectors.rounds.stored import with_seals

PAGE = 50
COUNTS = (
    *("granted", "renewed", "ended", "waiting", "waiting_gpus"),
    *("capacity", "used", "idle"),
)


@dataclass(frozen=True, slots=True)
class RoundsPage:
    """Rounds, newest first; `older` and `newer` are keys of the next pages, None at the ends."""

    rows: tuple[Round, ...]
    older: int | None
    newer: int | None

    def total(self, name: str) -> int:
        """Sum a count of the rows' summaries."""
        return sum(row.summary[name] for row in self.rows)

    def newest(self, count: int) -> "RoundsPage":
        """Return a page of only the first `count` rows."""
        if len(self.rows) <= count:
            return self
        return RoundsPage(self.rows[:count], self.rows[count - 1].number, self.newer)


def rounds_page(
    pool_id: int, *, before: int | None = None, after: int | None = None, limit: int = PAGE
) -> RoundsPage:
    """Return rounds by number: the newest, those below `before`, or those next above `after`."""
    rounds = Round.objects.filter(pool_id=pool_id).defer("shares", "superseded", "certificate")
    if after is not None:
        page = list(rounds.filter(number__gt=after).order_by("number")[: limit + 1])
        rows, older, newer = page[:limit][::-1], bool(page), len(page) > limit
    else:
        below = rounds if before is None else rounds.filter(number__lt=before)
        page = list(below.order_by("-number")[: limit + 1])
        rows, older, newer = page[:limit], len(page) > limit, before is not None
    for row in rows:
        if not _is_readable(row.summary):
            row.summary = nothing_counted()
    return RoundsPage(
        rows=tuple(rows),
        older=rows[-1].number if rows and older else None,
        newer=rows[0].number if rows and newer else None,
    )


def find_round(pool_id: int, number: int) -> Round | None:
    """Return a round of a pool, or None. A single query."""
    return with_seals(Round.objects.filter(pool_id=pool_id, number=number)).first()


def round_instants(pool_id: int, numbers: Collection[int]) -> list[tuple[datetime, datetime, int]]:
    """Return pool time, wall time and scale of rounds."""
    if not numbers:
        return []
    rows = Round.objects.filter(pool_id=pool_id, number__in=numbers)
    return list(rows.values_list("at", "wall_at", "scale"))


def nothing_counted() -> dict[str, Any]:
    """Return an empty summary, shown for a summary that was changed since it was written."""
    return {**dict.fromkeys(COUNTS, 0), "reasons": {}}


def _is_readable(summary: object) -> bool:
    """Return whether a list can show the summary. The round's page reports a changed summary."""
    return (
        isinstance(summary, dict)
        and all(isinstance(summary.get(name), int) for name in COUNTS)
        and isinstance(summary.get("reasons"), dict)
    )
