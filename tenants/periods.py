"""A tenant's quota of one GPU type as a row of periods, and how a change cuts it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

# Whose quota, of what: (tenant id, GPU type id).
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QuotaTerms:
    """What holds in a period: GPUs, mode, and its limits (None: no limit)."""

    gpus: int
    mode: str
    borrow_limit: int | None = None
    lend_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """Terms from an instant until another (None: open)."""

    terms: QuotaTerms
    since: datetime
    until: datetime | None = None

    def holds_at(self, at: datetime) -> bool:
        """Whether the period contains the instant; its end does not belong to it."""
        return self.since <= at and (self.until is None or at < self.until)


class OverlapError(ValueError):
    """A period would run into another one that was planned, `period`."""

    def __init__(self, period: Period) -> None:
        super().__init__(f"a period of {period.terms.gpus} begins {period.since}")
        self.period = period


def period_at(periods: Iterable[Period], at: datetime) -> Period | None:
    """Return the period that contains an instant, or None."""
    return next((period for period in periods if period.holds_at(at)), None)


def set_periods(
    periods: Sequence[Period], *, since: datetime, until: datetime | None, terms: QuotaTerms | None
) -> tuple[Period, ...]:
    """Let `terms` hold from `since` until `until` (None: open); terms None ends the quota.

    The period that runs at `since` is closed there, and goes on after `until` where it would
    have lasted longer. Equal neighbours become one.

    Raises:
        OverlapError: another period begins before `until`.
        ValueError: the period would be empty.
    """
    if until is not None and until <= since:
        raise ValueError("a period must end after it begins")
    kept: list[Period] = []
    for period in periods:
        ended = period.until is not None and period.until <= since
        if ended or (until is not None and period.since >= until):
            kept.append(period)
        elif period.since > since:
            raise OverlapError(period)
        else:
            kept += _rest(period, since, until)
    if terms is not None:
        kept.append(Period(terms, since, until))
    return _joined(kept)


def _rest(period: Period, since: datetime, until: datetime | None) -> list[Period]:
    """What stays of the running period before and after."""
    rest = [replace(period, until=since)] if period.since < since else []
    if until is not None and (period.until is None or until < period.until):
        rest.append(replace(period, since=until))
    return rest


def _joined(periods: Iterable[Period]) -> tuple[Period, ...]:
    joined: list[Period] = []
    for period in sorted(periods, key=lambda period: period.since):
        last = joined[-1] if joined else None
        if last is not None and last.until == period.since and last.terms == period.terms:
            joined[-1] = replace(last, until=period.until)
        else:
            joined.append(period)
    return tuple(joined)
