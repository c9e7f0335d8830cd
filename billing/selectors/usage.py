"""Charges by term, and what a settlement sums. Nothing here writes."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

import msgspec
from django.db.models import Case, OuterRef, Q, QuerySet, Subquery, When

from billing.models import MeterCursor, Transfer, UsageLine, UsageShare
from billing.selectors.accounts import ZERO, gpu_hours
from evenshare_core.domain.instants import to_us
from evenshare_core.money.fixed_point import PLACES, largest_remainder, to_credits, to_micro
from evenshare_core.money.rows import Amount, InstantUs, UsageRow
from evenshare_core.units import HOUR_US
from scheduling.models import LeaseTerm
from tenants.scopes import site_reading

PART = 10**12
Row = TypeVar("Row", bound=msgspec.Struct)
# Lines that move credits: the borrower's, or the operator's if rounds were late.
MOVES_CREDITS = Q(amount__gt=0) | Q(borne__gt=0)


@dataclass(frozen=True, slots=True)
class LenderShare:
    """What a lender earned of a term: charge x `weight` / `weights`, to the micro-credit.

    `weights` sums all lenders' weights; 0 where nobody had idle quota, and the operator earns all.
    """

    tenant_id: int | None
    tenant: str
    amount: Decimal
    lent_gpu_h: Decimal
    weight: int
    weights: int

    @property
    def part(self) -> Decimal:
        """Its part of the term, at each instant own idle quota / all idle quota: 12 places."""
        if not self.weights:
            return Decimal(1)
        return Decimal(round(Fraction(self.weight * PART, self.weights))) / PART

    @property
    def fraction(self) -> str:
        """The same exactly, where that is short; else empty."""
        if not 1 < self.weights < PART:
            return ""
        return f"{self.weight}/{self.weights}"


@dataclass(frozen=True, slots=True)
class TermCharge:
    """A closed term of a lease: what was own, what was borrowed, from whom, for how much.

    charge = borrowed GPUs x price x held time, with what the lease's terms before left over;
    `settled`: a transfer has moved it. `round` granted or renewed the term, at the price posted for
    it. It is None if nobody knows it. `charged_until`: if rounds were late, when the time that was
    charged ended; then the operator paid `borne` of what the lenders earned. None: at `ends_at`.
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

    @property
    def held(self) -> timedelta:
        """How long the term held its GPUs, in pool time."""
        return self.ends_at - self.starts_at


@dataclass(frozen=True, slots=True)
class UsageLineItem:
    """One lender's part of one line: the lender's income of an hour is the sum of these.

    charge = gpus x price x held + `carried` micro-credits, which the lease's terms before left over
    (None: from before remainders were carried). `round` granted or renewed the term; None where it
    is not known. `charged_until` and `borne`: as of `TermCharge`. Lenders share `charge` + `borne`.
    `share_borne`: what of the share the operator paid (`billing.selectors.late`).
    """

    job_id: int
    job: str
    job_uid: uuid.UUID
    gpu_type: str
    lease_id: int
    lease_number: int
    round: int | None
    term: int
    starts_at: datetime
    ends_at: datetime
    gpus: int
    price: Decimal
    charge: Decimal
    carried: Decimal | None
    share: LenderShare
    charged_until: datetime | None
    borne: Decimal
    share_borne: Decimal

    @property
    def held(self) -> timedelta:
        """How long the term held its GPUs, in pool time."""
        return self.ends_at - self.starts_at


@dataclass(frozen=True, slots=True)
class LenderIncome:
    """What one lender earned in a transfer, with the lines that it sums."""

    tenant_id: int | None
    tenant: str
    amount: Decimal
    lent_gpu_h: Decimal
    line_items: tuple[UsageLineItem, ...]


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
    # Of lines that the caller may see, to whomever they were paid.
    with site_reading():
        shares = _shares(line.pk for group in by_term.values() for line in group)
    settled = dict(MeterCursor.objects.values_list("pool_id", "settled_until"))
    rounds = {line.pk: line.round for line in lines}
    return [_term_charge(group, shares, settled, rounds) for group in by_term.values()]


# Where a row's field has another name than the line's.
_COLUMNS = {
    "tenant": "tenant__slug",
    "pool": "pool__name",
    "job": "job__uid",
    "lease": "lease__number",
    "gpu_type": "gpu_type__name",
}


def usage_rows(lines: QuerySet[UsageLine], limit: int) -> list[tuple[int, UsageRow]]:
    """Return the first lines as a tenant reads them, each with its number. One query."""
    names = UsageRow.__struct_fields__
    columns = [_COLUMNS.get(name, name) for name in names]
    rows = lines.annotate(round=term_round(), transfer=line_transfer()).values_list("pk", *columns)
    return [
        (number, stated(UsageRow, **dict(zip(names, values, strict=True))))
        for number, *values in rows[:limit]
    ]


def stated(kind: type[Row], **values: object) -> Row:
    """Return a row of `evenshare_core.money.rows` of what columns have."""
    return kind(**{name: _stated(value) for name, value in values.items()})


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
    """Return what annotates a usage line with the round that granted or renewed its term."""
    terms = LeaseTerm.objects.filter(lease=OuterRef("lease"), number=OuterRef("term"))
    return Subquery(terms.values("round")[:1])


def line_transfer() -> Case:
    """Return what annotates a usage line with the id of the transfer that settled it."""
    transfers = Transfer.objects.filter(
        code=Transfer.Code.USAGE,
        book=OuterRef("book"),
        pool=OuterRef("pool"),
        tenant=OuterRef("tenant"),
        hour=OuterRef("hour"),
    )
    return Case(When(MOVES_CREDITS, then=Subquery(transfers.values("pk")[:1])))


def transfer_incomes(transfer: Transfer) -> list[LenderIncome]:
    """Return who earned what in a usage transfer, largest first. Two queries: lines, shares.

    Of a transfer that the caller may see; the lines are its borrower's, the shares its lenders'.
    """
    with site_reading():
        return _transfer_incomes(transfer)


def _transfer_incomes(transfer: Transfer) -> list[LenderIncome]:
    if transfer.pool_id is None or transfer.tenant_id is None or transfer.hour is None:
        return []  # not a settlement of usage
    lines = {
        line.pk: line
        for line in UsageLine.objects.filter(
            MOVES_CREDITS,
            pool_id=transfer.pool_id,
            tenant_id=transfer.tenant_id,
            hour=transfer.hour,
        )
        .select_related("job", "lease", "gpu_type")
        .annotate(round=term_round())
    }
    by_lender: dict[tuple[int | None, str], list[UsageLineItem]] = defaultdict(list)
    for key, shares in _shares(lines).items():
        line = lines[key]
        parts = largest_remainder(to_micro(line.borne), [to_micro(one.amount) for one in shares])
        for share, part in zip(shares, parts, strict=True):
            by_lender[share.tenant_id, share.tenant].append(
                UsageLineItem(
                    job_id=line.job_id,
                    job=line.job.name,
                    job_uid=line.job.uid,
                    gpu_type=line.gpu_type.name,
                    lease_id=line.lease_id,
                    lease_number=line.lease.number,
                    round=line.round,
                    term=line.term,
                    starts_at=line.starts_at,
                    ends_at=line.ends_at,
                    gpus=line.gpus,
                    price=line.price,
                    charge=line.amount,
                    carried=carried_micro(line.carried),
                    share=share,
                    charged_until=line.charged_until,
                    borne=line.borne,
                    share_borne=to_credits(part),
                )
            )
    incomes = [
        LenderIncome(
            tenant_id=tenant_id,
            tenant=tenant,
            amount=sum((item.share.amount for item in line_items), ZERO),
            lent_gpu_h=sum((item.share.lent_gpu_h for item in line_items), ZERO),
            line_items=tuple(sorted(line_items, key=lambda a: (a.ends_at, a.lease_id, a.term))),
        )
        for (tenant_id, tenant), line_items in by_lender.items()
    ]
    return sorted(incomes, key=lambda income: (-income.amount, income.tenant))


def find_transfer(transfer_id: uuid.UUID) -> Transfer | None:
    """Return a transfer with its pool and borrower. One query."""
    return Transfer.objects.select_related("pool", "tenant", "book").filter(pk=transfer_id).first()


def _shares(lines: Iterable[int]) -> dict[int, list[LenderShare]]:
    by_line: dict[int, list[LenderShare]] = defaultdict(list)
    shares = (
        UsageShare.objects.filter(line_id__in=list(lines))
        .select_related("account__tenant")
        .order_by("line_id", "account__tenant_id")
    )
    stored = list(shares)
    weights: dict[int, int] = defaultdict(int)
    for share in stored:
        weights[share.line_id] += share.weight
    for share in stored:
        tenant = share.account.tenant
        by_line[share.line_id].append(
            LenderShare(
                tenant_id=share.account.tenant_id,
                tenant=tenant.slug if tenant else "operator",
                amount=share.amount,
                lent_gpu_h=gpu_hours(share.lent_gpu_us),
                weight=share.weight,
                weights=weights[share.line_id],
            )
        )
    return by_line


def carried_micro(carried: int | None) -> Decimal | None:
    """Return the remainder that a line's charge took over (`UsageLine.carried`) in micro-credits.

    None, that of a line of before remainders were carried, stays None.
    """
    return None if carried is None else (Decimal(carried) / HOUR_US).quantize(PLACES)


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
