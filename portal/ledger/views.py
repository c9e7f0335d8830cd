"""A tenant's ledger: its transfers with all their sides, and the usage lines behind each."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from billing.models import Transfer
from billing.selectors import (
    AccountSummary,
    LedgerEntry,
    LedgerRow,
    LenderIncome,
    account_summary,
    find_transfer,
    ledger_page,
    ledger_row,
    transfer_incomes,
)
from billing.selectors.balances import balances
from billing.selectors.usage import Addend as UsageAddend
from portal.charts.bars import hash_groups
from portal.charts.figures import apportion, credits_text, thousands
from portal.charts.notes import Addend, Instant, Note, Stat, credit_note
from portal.site.access import access, pool_of_page, signed_in, tenant_or_404
from portal.site.clocks import Clocks, clocks, pool_now
from scheduling.selectors.lines import pool_id_named
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.permissions import SITE_ACTIONS, Action
from tenants.scopes import site_scope

PERIOD = timedelta(hours=24)
ZERO = Decimal(0)
LINES = 500


@signed_in
@require_safe
def accounts(request: HttpRequest) -> HttpResponseBase:
    """The viewer's own ledger; for those who see all tenants, all accounts of the book."""
    who = access(request)
    if who.home is not None:
        return redirect("ledger", slug=who.home.slug)
    if Action.SEE_TENANT not in SITE_ACTIONS.get(who.site_role, frozenset()):
        raise Http404
    facts = pool_of_page(request)
    with site_scope():
        rows = balances(facts.book) if facts else []
    shown = apportion([row.balance for row in rows])
    context = {
        "rows": [replace(row, balance=part) for row, part in zip(rows, shown, strict=True)],
        "total": sum((row.balance for row in rows), ZERO),
        "book": facts.book if facts else "",
        "nav_key": "ledger",
        "live": True,
    }
    return render(request, "ledger/accounts.html", context)


@signed_in
@require_safe
def ledger(request: HttpRequest, slug: str) -> HttpResponseBase:
    """One tenant's account in the book of its pool."""
    tenant = tenant_or_404(request, slug)
    facts = pool_of_page(request)
    if facts is None:
        return render(request, "ledger/ledger.html", {"tenant": tenant, "nav_key": "ledger"})
    since = pool_now(facts).pool_at - PERIOD
    with site_scope():
        summary = account_summary(tenant.pk, facts.book, since=since)
        page = ledger_page(tenant.pk, facts.book, before=_before(request))
        visibilities = _visibilities(request, page.rows)
    rows = _rows(page.rows, visibilities, tenant.pk, clocks(facts))
    context = {
        "tenant": tenant,
        "pool": facts,
        "summary": summary,
        "balance": abs(summary.balance),
        "net": abs(summary.net),
        "stats": _stats(summary),
        "rows": rows,
        "printed_net": sum((row["net"] for row in rows), ZERO),
        "sums": {key: sum((getattr(r, key) or ZERO for r in page.rows), ZERO) for key in SUMMED},
        "older": page.next_before,
        "paged": _before(request) is not None,
        "nav_key": "ledger",
        "live": not request.GET,
    }
    return render(request, "ledger/ledger.html", context)


SUMMED = ("lent_gpu_h", "borrowed_gpu_h", "earned", "paid", "net")


@signed_in
@require_safe
def transfer(request: HttpRequest, slug: str, transfer: uuid.UUID) -> HttpResponseBase:
    """One transfer: all its sides, and the usage lines behind the tenant's own."""
    tenant = tenant_or_404(request, slug)
    facts = pool_of_page(request)
    with site_scope():
        row = ledger_row(transfer, tenant_id=tenant.pk)
        found = find_transfer(transfer) if row else None
        if row is None or found is None or facts is None:
            raise Http404
        incomes = transfer_incomes(found)
        visibilities = _visibilities(request, [row])
    times = clocks(facts)
    context = {
        "tenant": tenant,
        "row": row,
        "transfer": found,
        "body": hash_groups(found.body_sha256),
        "effective": times.instant(found.effective_at),
        "since": times.instant(row.hour),
        "until": times.instant(row.hour + timedelta(hours=1)) if row.hour else None,
        "entries": visible_entries(row, visibilities.get(row.pool), tenant.pk),
        "total": sum((entry.amount for entry in row.entries), ZERO),
        "behind": _behind(found, incomes, tenant.pk, times),
        "nav_key": "ledger",
    }
    return render(request, "ledger/transfer.html", context)


def _before(request: HttpRequest) -> int | None:
    raw = request.GET.get("before", "")
    if not raw:
        return None
    if not raw.isdecimal() or len(raw) > 18:
        raise Http404
    return int(raw)


# ---- who may be named ----


def _visibilities(request: HttpRequest, rows: Iterable[LedgerRow]) -> dict[str, Visibility]:
    """What the viewer sees of the tenants of each pool that the rows name."""
    visibilities = {}
    for pool in sorted({row.pool for row in rows if row.pool}):
        pool_id = pool_id_named(pool)
        if pool_id is not None:
            visibilities[pool] = read_visibility(pool_id, access(request))
    return visibilities


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a transfer as the viewer may see it."""

    name: str
    amount: Decimal
    here: bool = False


def visible_entries(row: LedgerRow, visibility: Visibility | None, tenant: int) -> list[Side]:
    """The entries of a transfer: this tenant, those in sight, all others in one sum."""
    sides, hidden = [], ZERO
    for entry in row.entries:
        name = _name(entry, visibility, tenant)
        if name:
            sides.append(Side(name, entry.amount, here=entry.tenant_id == tenant))
        else:
            hidden += entry.amount
    if hidden:
        sides.append(Side("other tenants", hidden))
    return sorted(sides, key=lambda side: (not side.here, side.amount))


def _name(entry: LedgerEntry, visibility: Visibility | None, tenant: int) -> str:
    if entry.tenant_id is None:
        return "operator, for quota of nobody"
    if entry.tenant_id == tenant:
        return entry.tenant
    seen = visibility.of(entry.tenant_id) if visibility else None
    return seen.name if seen else ""


# ---- the account ----


def _stats(found: AccountSummary) -> list[Stat]:
    limit = "none" if found.credit_limit is None else credits_text(found.credit_limit)
    net = credit_note(
        "The last 24 h of pool time, settled or not",
        [("earned", found.earned), ("paid", -found.paid)],
    )
    return [
        Stat(
            "Balance, settled hours",
            credits_text(found.balance, signed=True),
            "credits",
            (
                Addend("set aside for running terms", credits_text(found.set_aside)),
                Addend("credit limit", limit),
            ),
            note=Note(
                "Balance",
                words="All transfers since the account opened. What is set aside is the most that"
                " the terms which run now may still cost; what ended terms cost and no settlement"
                " has moved is in the next settlement, and not counted here.",
            ),
        ),
        Stat(
            "Earned, last 24 h",
            credits_text(found.earned),
            "credits",
            (Addend(f"lent: {_hours(found.lent_gpu_h)}", credits_text(found.earned)),),
            Addend("earned", credits_text(found.earned)),
        ),
        Stat(
            "Paid, last 24 h",
            credits_text(found.paid),
            "credits",
            (
                Addend(f"own quota: {_hours(found.own_gpu_h)}", credits_text(ZERO)),
                Addend(f"borrowed: {_hours(found.borrowed_gpu_h)}", credits_text(found.paid)),
            ),
            Addend("paid", credits_text(found.paid)),
            net,
        ),
        _next(found),
    ]


def _next(found: AccountSummary) -> Stat:
    """What is charged and not settled, as a figure without a sign."""
    pays = found.open_net < 0
    sides = [("charged", found.open_paid), ("earned", found.open_earned)]
    (first, plus), (second, minus) = sides if pays else sides[::-1]
    parts = apportion([plus, -minus])
    figure = credits_text(abs(found.open_net))
    return Stat(
        f"Next settlement: {'to pay' if pays else 'to receive'}",
        figure,
        "credits",
        (Addend(first, credits_text(parts[0])), Addend(second, credits_text(parts[1]))),
        Addend("when the hour closes", figure),
        Note(
            "Not settled yet",
            words="Terms that ended in hours which no settlement has moved. It is no part of the"
            " balance yet, and is counted in the last 24 h.",
        ),
    )


def _hours(gpu_h: Decimal) -> str:
    return f"{thousands(gpu_h, 2)} GPU-h"


def _rows(
    rows: Sequence[LedgerRow], visibilities: dict[str, Visibility], tenant: int, times: Clocks
) -> list[dict[str, Any]]:
    """Rows whose columns sum to their feet as printed."""
    columns = [
        apportion([getattr(row, key) or ZERO for row in rows])
        for key in ("lent_gpu_h", "borrowed_gpu_h", "earned", "paid")
    ]
    return [
        {
            **_row(row, visibilities, tenant, times),
            "lent": None if row.lent_gpu_h is None else lent,
            "borrowed": None if row.borrowed_gpu_h is None else borrowed,
            "earned": earned,
            "paid": paid,
            "net": earned - paid,
        }
        for row, lent, borrowed, earned, paid in zip(rows, *columns, strict=True)
    ]


def _row(
    row: LedgerRow, visibilities: dict[str, Visibility], tenant: int, times: Clocks
) -> dict[str, Any]:
    sides = visible_entries(row, visibilities.get(row.pool), tenant)
    if row.code != Transfer.Code.USAGE:
        what = Transfer.Code(row.code).label
    elif row.borrower_id == tenant:
        what = "borrowed"
    else:
        visibility = visibilities.get(row.pool)
        seen = visibility.of(row.borrower_id) if visibility and row.borrower_id else None
        what = f"lent to {seen.name if seen else 'another tenant'}"
    return {
        "row": row,
        "what": what,
        "at": times.instant(row.hour or row.effective_at),
        "until": times.instant(row.hour + timedelta(hours=1)) if row.hour else None,
        "note": _entries_note(sides),
    }


def _entries_note(sides: Sequence[Side]) -> Note:
    return credit_note("All sides of the transfer", [(side.name, side.amount) for side in sides])


# ---- behind a transfer ----


@dataclass(frozen=True, slots=True)
class Line:
    """One usage line: a term's borrowed GPUs. `share` is the lender's part, None for all of it.

    `round` granted or renewed the term. `job` and `uid` are empty where it is another tenant's.
    """

    ends_at: Instant | None
    lease: int
    term: int
    round: int | None
    gpus: int
    price: Decimal
    charge: Decimal
    job: str = ""
    uid: uuid.UUID | None = None
    share: Decimal | None = None
    idle_gpu_h: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Behind:
    """The lines behind a tenant's entry; a borrower sees its terms, a lender its shares."""

    paid: tuple[Line, ...]
    earned: tuple[Line, ...]
    paid_total: Decimal
    earned_total: Decimal
    left_out: int


def _behind(found: Transfer, incomes: Sequence[LenderIncome], tenant: int, times: Clocks) -> Behind:
    paid: dict[tuple[int, int], Line] = {}
    if found.tenant_id == tenant:
        every = [addend for income in incomes for addend in income.addends]
        for addend in sorted(every, key=lambda addend: (addend.ends_at, addend.lease_id)):
            paid[addend.lease_id, addend.term] = _line(
                addend, times, job=addend.job, uid=addend.job_uid
            )
    earned = [
        _line(addend, times, share=addend.share.amount, idle_gpu_h=addend.share.weight_gpu_h)
        for income in incomes
        if income.tenant_id == tenant
        for addend in income.addends
    ]
    lines = list(paid.values())
    return Behind(
        paid=tuple(lines[:LINES]),
        earned=tuple(earned[:LINES]),
        paid_total=sum((line.charge for line in lines), ZERO),
        earned_total=sum((line.share or ZERO for line in earned), ZERO),
        left_out=max(0, len(lines) - LINES) + max(0, len(earned) - LINES),
    )


def _line(addend: UsageAddend, times: Clocks, **more: Any) -> Line:
    return Line(
        ends_at=times.instant(addend.ends_at),
        lease=addend.lease_number,
        term=addend.term,
        round=addend.round,
        gpus=addend.gpus,
        price=addend.price,
        charge=addend.charge,
        **more,
    )
