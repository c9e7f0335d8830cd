"""A line of income with all its factors: intervals, weights, the split."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.utils.translation import gettext as _

from billing.selectors.factors import IncomeFactors, LineFactors
from billing.selectors.income import IncomeLine
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.money.revenue.factors import CountedSpan, IdleStep
from evenshare_core.units import SECOND_US
from portal.charts.notes import Instant
from portal.common.clocks import Clocks
from portal.ledger.text.statement import VisibleNames
from scheduling.selectors.visibility import OTHER_TENANT, Visibility

INTERVALS_MOST = 500
PLACES = 10**6


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """An interval of constant idle quota, and its addition to the lender's weight, in seconds."""

    starts_at: Instant | None
    ends_at: Instant | None
    length_s: Decimal
    own: int
    total: int
    part_s: Decimal


@dataclass(frozen=True, slots=True)
class LenderPart:
    """A lender's weight, its part of the charge before rounding, and its share."""

    name: str
    weight: int
    exact: Decimal
    got: Decimal | None
    is_you: bool


def income_context(
    factors: IncomeFactors,
    tenant_id: int,
    names: VisibleNames,
    visibility: Visibility,
    times: Clocks,
) -> dict[str, Any]:
    """Return the data of an income line's page."""
    (row,) = factors.lines
    line, span = row.line, row.span
    steps = factors.steps.get(line.gpu_type, ())
    rows = [] if span is None else _intervals(span, steps, times)
    part = None if span is None else _part(span, steps, tenant_id)
    held_us = to_us(line.ends_at) - to_us(line.starts_at)
    return {
        "line": line,
        "times": times,
        "held_s": Decimal(held_us) / SECOND_US,
        "borrower": names.of(line.borrower_id) or _(OTHER_TENANT),
        "intervals": rows[:INTERVALS_MOST],
        "left_out": max(0, len(rows) - INTERVALS_MOST),
        "counted_s": None if span is None else Decimal(span.until_us - span.from_us) / SECOND_US,
        "part_s": None if part is None else _rounded(part),
        "is_late": span is not None
        and (span.from_us, span.until_us) != (to_us(line.starts_at), to_us(line.ends_at)),
        "then": None if span is None else span.of(tenant_id),
        "lenders": None if visibility.hides else _lenders(row, tenant_id, names),
        "exact": _exact(row, line.weight),
    }


def verified_time(line: IncomeLine) -> tuple[datetime, datetime]:
    """Return the day, of pool time, whose statement has the line."""
    day = line.counted_at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day, day + timedelta(days=1)


def _intervals(span: CountedSpan, steps: Sequence[IdleStep], times: Clocks) -> list[IntervalRow]:
    rows = []
    for index, step in enumerate(steps):
        ends_us = steps[index + 1].at_us if index + 1 < len(steps) else span.until_us
        length_us = ends_us - step.at_us
        part = Fraction(step.own * length_us, step.total * SECOND_US) if step.total else Fraction(0)
        rows.append(
            IntervalRow(
                starts_at=times.instant(from_us(step.at_us)),
                ends_at=times.instant(from_us(ends_us)),
                length_s=Decimal(length_us) / SECOND_US,
                own=step.own,
                total=step.total,
                part_s=_rounded(part),
            )
        )
    return rows


def _part(span: CountedSpan, steps: Sequence[IdleStep], tenant_id: int) -> Fraction | None:
    """Return the sum of own / total x length over the intervals, in seconds.

    Return None without intervals, or if the span's weights are those of one instant.
    """
    if span.of(tenant_id) is not None or not steps:
        return None
    ends = [*(step.at_us for step in steps[1:]), span.until_us]
    return sum(
        (
            Fraction(step.own * (end - step.at_us), step.total * SECOND_US)
            for step, end in zip(steps, ends, strict=True)
            if step.total
        ),
        Fraction(0),
    )


def _lenders(row: LineFactors, tenant_id: int, names: VisibleNames) -> list[LenderPart]:
    return [
        LenderPart(
            name=names.of(lender) or _(OTHER_TENANT),
            weight=weight,
            exact=_exact(row, weight),
            got=row.line.earned if lender == tenant_id else None,
            is_you=lender == tenant_id,
        )
        for lender, weight in row.weights
    ]


def _exact(row: LineFactors, weight: int) -> Decimal:
    """Return charge x weight / all weights in credits, to twelve places."""
    weights = row.line.weights
    if not weights:
        return to_credits(0)
    micro = Fraction(to_micro(row.line.charge) * weight, weights)
    return Decimal(round(micro * PLACES)) / (PLACES * PLACES)


def _rounded(seconds: Fraction) -> Decimal:
    return Decimal(round(seconds * PLACES)) / PLACES
