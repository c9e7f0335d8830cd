"""Charges by term, and the lines of a settlement. Read-only."""

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, TypeVar

import msgspec
from django.db.models import (
    Case,
    DurationField,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    When,
)

from billing.models import MeterCursor, Transfer, UsageLine, UsageShare
from billing.selectors.accounts import ZERO, gpu_hours
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.money.rows import Amount, InstantUs, UsageRow
from scheduling.models import LeaseTerm
from tenants.scopes import site_reading

Row = TypeVar("Row", bound=msgspec.Struct)
# Lines that move credits: charges of the borrower, or payments of the operator for late rounds.
MOVES_CREDITS = Q(amount__gt=0) | Q(borne__gt=0)


_MICROSECOND = timedelta(microseconds=1)


class LenderShare(NamedTuple):
    """A lender's income from a term; `tenant_id` is None for the operator."""

    tenant_id: int | None
    amount: Decimal


@dataclass(frozen=True, slots=True)
class TermCharge:
    """A closed term of a lease: own and borrowed GPUs, lenders, and the charge.

    charge = borrowed GPUs x price x held time, plus the remainder of the lease's earlier terms.
    `settled`: a transfer has moved it. `round` granted or renewed the term, at the price posted for
    it, or is None if unknown. `charged_until`: if rounds were late, the end of the charged time;
    the operator then paid `borne` of the lenders' income. None means `ends_at`.
    """

    lease_id: int
    lease_number: int
    term: int
    gpu_type: str
    starts_at: datetime
    ends_at: datetime
    own_gpus: int
    borrowed_gpus: int
    own_gpu_h: Decimal
    borrowed_gpu_h: Decimal
    price: Decimal
    charge: Decimal
    settled: bool
    lenders: tuple[LenderShare, ...]
    round: int | None = None
    charged_until: datetime | None = None
    borne: Decimal = ZERO


class JobCost(NamedTuple):
    """The GPU-hours and charges of a job's closed terms."""

    gpu_h: Decimal = ZERO
    charge: Decimal = ZERO


def job_costs(job_ids: Iterable[int]) -> dict[int, JobCost]:
    """Return the costs of jobs with closed terms. A single query."""
    lines = UsageLine.objects.filter(job__in=list(job_ids)).values("job")
    held = Sum(F("gpus") * (F("ends_at") - F("starts_at")), output_field=DurationField())
    rows = lines.annotate(held=held, charged=Sum("amount"))
    return {
        row["job"]: JobCost(gpu_hours(row["held"] // _MICROSECOND), row["charged"]) for row in rows
    }


def job_charges(job_id: int) -> list[TermCharge]:
    """Return the closed terms of a job in order. Three queries: lines, shares, cursors."""
    lines = (
        UsageLine.objects.filter(job_id=job_id)
        .select_related("lease", "gpu_type")
        .annotate(round=term_round())
        .order_by("lease_id", "term", "meter")
    )
    by_term: dict[tuple[int, int], list[UsageLine]] = defaultdict(list)
    for line in lines:
        by_term[line.lease_id, line.term].append(line)
    # A caller who may see these lines may also see the incomes of all their lenders.
    with site_reading():
        shares = _shares(line.pk for group in by_term.values() for line in group)
    settled = dict(MeterCursor.objects.values_list("pool_id", "settled_until"))
    rounds = {line.pk: line.round for line in lines}
    return [_term_charge(group, shares, settled, rounds) for group in by_term.values()]


# Row field -> field of the line, if the names differ.
_COLUMNS = {
    "tenant": "tenant__slug",
    "pool": "pool__name",
    "job": "job__uid",
    "lease": "lease__number",
    "gpu_type": "gpu_type__name",
}


def usage_rows(lines: QuerySet[UsageLine], limit: int) -> list[tuple[int, UsageRow]]:
    """Return the first lines as a tenant sees them, each with its number, with one query."""
    names = UsageRow.__struct_fields__
    columns = [_COLUMNS.get(name, name) for name in names]
    rows = lines.annotate(round=term_round(), transfer=line_transfer()).values_list("pk", *columns)
    return [
        (number, stated(UsageRow, **dict(zip(names, values, strict=True))))
        for number, *values in rows[:limit]
    ]


def stated(kind: type[Row], row: object = None, /, **more: object) -> Row:
    """Return a row of `evenshare_core.money.rows`: fields of `more`, and others from `row`."""
    names = more if row is None else kind.__struct_fields__
    return kind(
        **{name: _stated(more[name] if name in more else getattr(row, name)) for name in names}
    )


def _stated(value: object) -> object:
    match value:
        case Decimal():
            return Amount(to_micro(value))
        case datetime():
            return InstantUs(to_us(value))
        case uuid.UUID():
            return str(value)
    return value


def term_round() -> Subquery:
    """Return an annotation of usage lines: the round that granted or renewed their term."""
    terms = LeaseTerm.objects.filter(lease=OuterRef("lease"), number=OuterRef("term"))
    return Subquery(terms.values("round")[:1])


def line_transfer() -> Case:
    """Return an annotation of usage lines: the id of the transfer that settled them."""
    transfers = Transfer.objects.filter(
        code=Transfer.Code.USAGE,
        book=OuterRef("book"),
        pool=OuterRef("pool"),
        tenant=OuterRef("tenant"),
        hour=OuterRef("hour"),
    )
    return Case(When(MOVES_CREDITS, then=Subquery(transfers.values("pk")[:1])))


def find_transfer(transfer_id: uuid.UUID) -> Transfer | None:
    """Return a transfer with its pool and borrower, with one query."""
    return Transfer.objects.select_related("pool", "tenant", "book").filter(pk=transfer_id).first()


def _shares(lines: Iterable[int]) -> dict[int, list[LenderShare]]:
    by_line: dict[int, list[LenderShare]] = defaultdict(list)
    shares = UsageShare.objects.filter(line_id__in=list(lines))
    rows = shares.order_by("line_id", "account__tenant_id")
    for line, lender, amount in rows.values_list("line_id", "account__tenant_id", "amount"):
        by_line[line].append(LenderShare(lender, amount))
    return by_line


def _term_charge(
    lines: list[UsageLine],
    shares: dict[int, list[LenderShare]],
    settled: dict[int, datetime | None],
    rounds: dict[int, int | None],
) -> TermCharge:
    head = lines[0]
    gpus = {line.meter: line.gpus for line in lines}
    own, borrowed = gpus.get("own", 0), gpus.get("borrowed", 0)
    held_us = to_us(head.ends_at) - to_us(head.starts_at)
    until = settled.get(head.pool_id)
    return TermCharge(
        lease_id=head.lease_id,
        lease_number=head.lease.number,
        term=head.term,
        gpu_type=head.gpu_type.name,
        starts_at=head.starts_at,
        ends_at=head.ends_at,
        own_gpus=own,
        borrowed_gpus=borrowed,
        own_gpu_h=gpu_hours(own * held_us),
        borrowed_gpu_h=gpu_hours(borrowed * held_us),
        price=max(line.price for line in lines),
        charge=sum((line.amount for line in lines), ZERO),
        settled=until is not None and head.hour < until,
        lenders=tuple(share for line in lines for share in shares.get(line.pk, ())),
        round=rounds[head.pk],
        charged_until=next((line.charged_until for line in lines if line.charged_until), None),
        borne=sum((line.borne for line in lines), ZERO),
    )
