"""Texts about a tenant's ledger: its account, its transfers, and the lines behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from billing.models import Transfer
from billing.selectors.accounts import AccountSummary, LedgerEntry, LedgerRow, exact_hours
from billing.selectors.contribution import OTHERS
from billing.selectors.income import IncomeLine
from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.money.rows import LateStartRow
from portal.charts.figures import apportion, credits_text, thousands
from portal.charts.notes import LineItem, Note, Stat, credit_note
from portal.common.clocks import Clocks
from portal.ledger.text.statement import OPERATOR, OPERATOR_LATE, OPERATOR_START
from scheduling.selectors.visibility import Visibility

ZERO = Decimal(0)
LINES = 500


def balance_note(account: AccountSummary | None = None) -> Note:
    """Return what the balance is, and with the account what limits it."""
    note = Note(
        _("Balance"),
        text=_(
            "All transfers since the account opened. Reserved: the most that running terms may"
            " still cost. Unsettled charges of ended terms are in the next settlement and not"
            " counted here."
        ),
    )
    if account is None:
        return note
    limit = account.credit_limit
    return replace(
        note,
        line_items=(
            LineItem(
                _("reserved for running terms"), credits_text(account.reserved_for_open_terms)
            ),
            LineItem(
                _("credit limit"),
                pgettext("limit", "none") if limit is None else credits_text(limit),
            ),
        ),
    )


def visible_entries(
    row: LedgerRow, visibility: Visibility | None, tenant: int
) -> list[LedgerEntry]:
    """Return the entries of a transfer: the tenant, visible tenants, and the sum of all others.

    Their `tenant` is the visible name.
    """
    sides, hidden = [], ZERO
    for entry in row.entries:
        name = _name(entry, row.code, visibility, tenant)
        if name:
            sides.append(replace(entry, tenant=name))
        else:
            hidden += entry.amount
    if hidden:
        sides.append(LedgerEntry(None, _(OTHERS), hidden))
    return sorted(sides, key=lambda side: (side.tenant_id != tenant, side.amount))


def _name(entry: LedgerEntry, code: str, visibility: Visibility | None, tenant: int) -> str:
    if entry.tenant_id is None and code == Transfer.Code.LATE_START:
        return _(OPERATOR_START)
    if entry.tenant_id is None:
        # The operator pays usage only for late rounds.
        is_late = entry.amount < 0 and code == Transfer.Code.USAGE
        return _(OPERATOR_LATE) if is_late else _(OPERATOR)
    seen = visibility.of(entry.tenant_id) if visibility else None
    if seen is not None:
        return seen.name
    return entry.tenant if entry.tenant_id == tenant else ""


def account_stats(account: AccountSummary) -> list[Stat]:
    """Return the account: income and payments of the last day, the next settlement."""
    net = credit_note(
        _("Last 24 h of pool time, including unsettled"),
        [(_("earned"), account.earned), (_("paid"), -account.paid)],
    )
    return [
        Stat(
            _("Earned, last 24 h"),
            credits_text(account.earned),
            _("credits"),
            (_time_line(_("lent: {time}"), account.lent_gpu_h, account.earned),),
        ),
        Stat(
            _("Paid, last 24 h"),
            credits_text(account.paid),
            _("credits"),
            (
                _time_line(_("own quota: {time}"), account.own_gpu_h, ZERO),
                _time_line(_("borrowed: {time}"), account.borrowed_gpu_h, account.paid),
            ),
            LineItem(_("paid"), credits_text(account.paid)),
            net,
        ),
        _next(account),
    ]


def _next(account: AccountSummary) -> Stat:
    """Return the charged but unsettled amount, without a sign."""
    pays = account.open_net < 0
    sides = [(_("charged"), account.open_paid), (_("earned"), account.open_earned)]
    (first, plus), (second, minus) = sides if pays else sides[::-1]
    parts = apportion([plus, -minus])
    figure = credits_text(abs(account.open_net))
    return Stat(
        _("Next settlement: to pay") if pays else _("Next settlement: to receive"),
        figure,
        _("credits"),
        (
            LineItem(first, credits_text(parts[0])),
            LineItem(second, credits_text(parts[1])),
        ),
        LineItem(_("at the end of the hour"), figure),
        Note(
            _("Not settled yet"),
            text=_(
                "Terms that ended in unsettled hours. They count in the last 24 h, but not yet"
                " in the balance."
            ),
        ),
    )


def _time_line(label: str, gpu_h: Decimal, amount: Decimal) -> LineItem:
    return LineItem(label.format(time=f"{thousands(gpu_h, 2)} GPU-h"), credits_text(amount))


def ledger_rows(
    rows: Sequence[LedgerRow],
    visibilities: Mapping[str, Visibility],
    tenant: int,
    times: Mapping[str, Clocks],
) -> list[dict[str, Any]]:
    """Return rows whose printed columns add up, each on the clock of its pool."""
    columns = [
        apportion([getattr(row, key) or ZERO for row in rows])
        for key in ("lent_gpu_h", "borrowed_gpu_h", "earned", "paid")
    ]
    return [
        {
            **_row(row, visibilities, tenant, times[row.pool]),
            "lent": None if row.lent_gpu_h is None else lent,
            "borrowed": None if row.borrowed_gpu_h is None else borrowed,
            "earned": earned,
            "paid": paid,
            "net": earned - paid,
        }
        for row, lent, borrowed, earned, paid in zip(rows, *columns, strict=True)
    ]


def _row(
    row: LedgerRow, visibilities: Mapping[str, Visibility], tenant: int, times: Clocks
) -> dict[str, Any]:
    sides = visible_entries(row, visibilities.get(row.pool), tenant)
    if row.code != Transfer.Code.USAGE:
        what = str(Transfer.Code(row.code).label)
    elif row.borrower_id == tenant:
        what = _("borrowed")
    else:
        visibility = visibilities.get(row.pool)
        seen = visibility.of(row.borrower_id) if visibility and row.borrower_id else None
        what = (
            _("lent to {tenant}").format(tenant=seen.name) if seen else _("lent to another tenant")
        )
    return {
        "row": row,
        "what": what,
        "at": times.instant(row.hour or row.effective_at),
        "note": _entries_note(sides),
    }


def _entries_note(sides: Sequence[LedgerEntry]) -> Note:
    return credit_note(
        _("All sides of the transfer"), [(side.tenant, side.amount) for side in sides]
    )


def late_start_facts(late: LateStartRow, times: Clocks) -> dict[str, Any]:
    """Return a late start with its times on the pool's clock; the lateness is in hours."""
    return {
        "row": late,
        "rate": to_credits(int(late.rate)),
        "latest": times.instant(from_us(late.latest_at)),
        "until": times.instant(from_us(late.until)),
        "hours": exact_hours(late.until - late.latest_at),
    }


@dataclass(frozen=True, slots=True)
class Behind:
    """The lines behind a tenant's entry: a borrower's terms, a lender's shares."""

    paid: Sequence[IncomeLine]
    earned: Sequence[IncomeLine]
    paid_total: Decimal
    earned_total: Decimal
    left_out: int


def lines_behind(paid: Sequence[IncomeLine], earned: Sequence[IncomeLine]) -> Behind:
    return Behind(
        paid=paid[:LINES],
        earned=earned[:LINES],
        paid_total=sum((line.paid for line in paid), ZERO),
        earned_total=sum((line.earned for line in earned), ZERO),
        left_out=max(0, len(paid) - LINES) + max(0, len(earned) - LINES),
    )
