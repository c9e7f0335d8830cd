"""The size of the stored bytes of a pool's rounds, as figures and rows."""

from django.utils.translation import gettext as _

from portal.charts.figures import plural, thousands
from portal.charts.notes import LineItem, Stat
from portal.charts.zones import full_text
from scheduling.selectors.rounds.space import DaySpace, RoundSpace

MB = 10**6
# The number of rows, one per day; older days are only in the sums.
ROWS = 14


def megabytes(size: int) -> str:
    """Return bytes as MB, with three decimals if below 10 MB."""
    return thousands(size / MB, 1 if size >= 10 * MB else 3)


def space_rows(space: RoundSpace) -> list[tuple[DaySpace, str, str, str]]:
    """Return the newest days, each with its MB in the database, in files, and in both."""
    return [
        (
            day,
            megabytes(day.database) if day.database else "0",
            megabytes(day.files) if day.files else "0",
            megabytes(day.bytes),
        )
        for day in space.days[:ROWS]
    ]


def space_stats(space: RoundSpace, keep_days: int) -> list[Stat]:
    """Return the present size of stored rounds, and the size with `keep_days` days."""
    projected = space.projected(keep_days)
    looked = full_text(space.looked_at) if space.looked_at else _("never")
    return [
        Stat(
            _("A day takes"),
            *_figure(space.a_day),
            (LineItem(_("stored"), plural(len(space.days), "day")),),
        ),
        Stat(
            _("In the database"), *_figure(space.database), (LineItem(_("kept"), plural(8, "day")),)
        ),
        Stat(_("In files"), *_figure(space.files), (LineItem(_("last measured"), looked),)),
        Stat(
            plural(keep_days, "day"),
            *_figure(projected),
            (LineItem(_("oldest kept"), str(space.oldest or _("none"))),),
        ),
    ]


def _figure(size: int | None) -> tuple[str, str]:
    return ("-", _("no whole day yet")) if size is None else (megabytes(size), "MB")
