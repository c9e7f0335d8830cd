"""The sources of a number: notes with its line items, account, certificate and times.

Values only: templates/components draw them. All texts are plain text.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Protocol

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from portal.charts.figures import (
    apportion,
    clock,
    credits_text,
    iso,
    plural,
    relative,
    thousands,
    utc,
)
from portal.charts.glyphs import StateBadge
from portal.charts.zones import clock_text, full_text, hover_text, seconds_text

PRICE_FORMULA = gettext_noop("base \N{MULTIPLICATION SIGN} (theta ^ use \N{MINUS SIGN} 1)")
PRICE_WITH_SURCHARGE = gettext_noop(
    "base \N{MULTIPLICATION SIGN} (theta ^ use \N{MINUS SIGN} 1) + surcharge"
)

# A pool's clock with at most this difference shows the same time as the wall clock.
SAME = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class LineItem:
    """A line of a sum: a label and a formatted value with its sign."""

    label: str
    value: str


class PriceParts(Protocol):
    """The parts of a posted price; `surcharge` and `queued` are None if the queue adds nothing."""

    @property
    def base(self) -> Decimal: ...
    @property
    def theta(self) -> Decimal: ...
    @property
    def used(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    @property
    def surcharge(self) -> Decimal | None: ...
    @property
    def queued(self) -> int | None: ...


def price_lines(parts: PriceParts, price: Decimal) -> tuple[tuple[LineItem, ...], LineItem]:
    """Return the formula of a posted price as line items, and the line of its result."""
    lines = [
        LineItem(_("base price"), credits_text(parts.base, 6)),
        LineItem("theta", thousands(parts.theta, 3)),
        LineItem(
            _("use"),
            _("{used} of {gpus}").format(
                used=thousands(parts.used), gpus=plural(parts.capacity, "GPU")
            ),
        ),
    ]
    if parts.surcharge is None:
        return tuple(lines), LineItem(_(PRICE_FORMULA), credits_text(price, 6))
    queue = _("surcharge, {gpus} queued for borrowing").format(
        gpus=plural(parts.queued or 0, "GPU")
    )
    lines.append(LineItem(queue, credits_text(parts.surcharge, 6)))
    return tuple(lines), LineItem(_(PRICE_WITH_SURCHARGE), credits_text(price, 6))


@dataclass(frozen=True, slots=True)
class Link:
    """A link with its text."""

    text: str
    href: str


@dataclass(frozen=True, slots=True)
class Note:
    """The note behind a dotted number: a title, line items, their sum, a sentence, links.

    `times`: the pool's clocks, if the sentence has instants of pool time. They are no part of the
    note's content, on which its id depends.
    """

    title: str
    line_items: tuple[LineItem, ...] = ()
    total: LineItem | None = None
    text: str = ""
    links: tuple[Link, ...] = ()
    times: "PoolClocks | None" = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Stat:
    """A figure of the stat strip: label, figure, unit, line items and their sum.

    `state` is the state mark next to the figure.
    """

    label: str
    figure: str
    unit: str
    lines: tuple[LineItem, ...] = ()
    total: LineItem | None = None
    note: Note | None = None
    state: StateBadge | None = None


@dataclass(frozen=True, slots=True)
class Promise:
    """A row of a certificate: a property by its standard name, with an explanation.

    `verdict` is holds, note (holds, with a note) or violated; grey verdicts are unclaimed ("not
    claimed"), unpromised, not_applicable and unmeasured.
    """

    name: str
    verdict: str
    text: str = ""
    note: Note | None = None
    meaning: str = ""


UNPROMISED = ("unclaimed", "unpromised", "not_applicable")


@dataclass(frozen=True, slots=True)
class CertificatePanel:
    """A round's promises, with a text on how they were checked.

    `alarm`: a sentence, if they are missing or differ when they are checked again.
    """

    title: str
    promises: tuple[Promise, ...]
    text: str = ""
    issued: str = ""
    alarm: str = ""

    @property
    def ordered(self) -> tuple[Promise, ...]:
        """Return violated promises first, then those that hold or were not measured."""
        rank = {"violated": 0, "holds": 1, "note": 1, "unmeasured": 2}
        checked = (promise for promise in self.promises if promise.verdict in rank)
        return tuple(sorted(checked, key=lambda promise: rank[promise.verdict]))

    @property
    def rest(self) -> tuple[Promise, ...]:
        """Return the properties that are not claimed, not promised or not applicable."""
        return tuple(promise for promise in self.promises if promise.verdict in UNPROMISED)

    @property
    def broken(self) -> int:
        """Return the number of violated promises."""
        return self.count("violated")

    @property
    def broken_text(self) -> str:
        """Return how many promises are broken, as a sentence; empty if none is."""
        count = self.broken
        if not count:
            return ""
        text = ngettext("{count} promise is broken.", "{count} promises are broken.", count)
        return text.format(count=thousands(count))

    def count(self, *verdicts: str) -> int:
        """Return the number of promises with one of these verdicts."""
        return sum(promise.verdict in verdicts for promise in self.promises)


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant on a pool's clock with its wall time, as seen at `now` (pool time).

    `wall` is None if it is unknown, as for an instant before the pool's clock was anchored.
    `wall_now` is the wall time at `now`.
    """

    pool: datetime
    now: datetime
    wall: datetime | None = None
    scale: int = 1
    wall_now: datetime | None = None

    @property
    def ago_s(self) -> float:
        """Return pool seconds since the instant; negative if it is in the future."""
        return (self.now - self.pool).total_seconds()

    @property
    def wall_ago_s(self) -> float | None:
        """Return wall seconds since the instant, or None if they are unknown."""
        if self.wall is None or self.wall_now is None:
            return None
        return (self.wall_now - self.wall).total_seconds()

    @property
    def relative(self) -> str:
        """Return the pool time since the instant: "3 s ago"."""
        return relative(self.ago_s)

    @property
    def iso(self) -> str:
        """Return the `datetime` attribute of a <time> element."""
        return iso(self.pool)

    @property
    def is_wall(self) -> bool:
        """Return whether the pool's clock shows the wall time, so that the viewer's zone applies.

        Past instants count too, because pages know the wall time of few of them.
        """
        if self.wall_now is None or self.scale != 1:
            return False
        return abs(self.wall_now - self.now) < SAME

    @property
    def clock(self) -> str:
        """Return "14:06", by the viewer's clock or in pool time."""
        return clock_text(self.pool) if self.is_wall else self.utc_clock

    @property
    def seconds(self) -> str:
        """Return "14:06:00", by the viewer's clock or in pool time."""
        return seconds_text(self.pool) if self.is_wall else self.utc_seconds

    @property
    def full(self) -> str:
        """Return "2026-11-20 14:06:00", by the viewer's clock, or with UTC in pool time."""
        return full_text(self.pool) if self.is_wall else utc(self.pool)

    @property
    def utc_clock(self) -> str:
        """Return "14:06", UTC in any zone of the viewer, as accounts count hours."""
        return clock(self.pool)

    @property
    def utc_seconds(self) -> str:
        """Return "14:06:00", UTC in any zone of the viewer."""
        return f"{self.pool.astimezone(UTC):%H:%M:%S}"

    @property
    def title(self) -> str:
        """Return the time in the viewer's zone and UTC; for another clock, on both clocks."""
        if self.is_wall:
            return hover_text(self.pool)
        return self._clocks("" if self.wall is None else hover_text(self.wall))

    @property
    def shared_title(self) -> str:
        """Return both clocks in UTC, for a part of a page that is rendered once for all viewers."""
        return self._clocks("" if self.wall is None else utc(self.wall))

    def _clocks(self, wall: str) -> str:
        parts = [_("pool time {time}").format(time=utc(self.pool))]
        if wall:
            parts.append(_("wall time {time}").format(time=wall))
        parts.append(_("clock \N{MULTIPLICATION SIGN}{scale}").format(scale=self.scale))
        return " \N{MIDDLE DOT} ".join(parts)


class PoolClocks(Protocol):
    """A pool's clock, such as `portal.common.clocks.Clocks`."""

    def instant(self, at: datetime | None) -> Instant | None: ...


def credit_note(
    title: str,
    line_items: Iterable[tuple[str, Decimal]],
    *,
    places: int = 2,
    total: str = "",
    text: str = "",
    links: tuple[Link, ...] = (),
) -> Note:
    """Return a note with the exact sum of its amounts.

    The printed amounts also add up: `apportion` distributes the rounding.
    """
    rows = tuple(line_items)
    parts = apportion([amount for _label, amount in rows], places)
    return Note(
        title=title,
        line_items=tuple(
            LineItem(label, credits_text(part, places, True))
            for (label, _amount), part in zip(rows, parts, strict=True)
        ),
        total=LineItem(total or _("net"), credits_text(sum(parts, Decimal(0)), places, True)),
        text=text,
        links=links,
    )


def count_note(
    title: str,
    line_items: Iterable[tuple[str, int]],
    *,
    total: str = "",
    text: str = "",
    links: tuple[Link, ...] = (),
) -> Note:
    """Return a note of whole numbers (GPUs, jobs, leases) and their sum."""
    rows = tuple(line_items)
    return Note(
        title=title,
        line_items=tuple(LineItem(label, thousands(value)) for label, value in rows),
        total=LineItem(total or _("sum"), thousands(sum(value for _label, value in rows))),
        text=text,
        links=links,
    )
