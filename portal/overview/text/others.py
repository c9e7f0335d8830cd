"""Data of templates/overview/_others.html: throughput with other tenants' shares, and by trades."""

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from evenshare_core.fairness.others_shares import QuotaWork
from portal.charts.figures import thousands
from portal.charts.tenants import TenantBadge
from portal.common.tenant_badges import badge_of
from scheduling.selectors.tenants.others_shares import JobTypeShares, SharesCompared

PLACES = 2


@dataclass(frozen=True, slots=True)
class OtherRow:
    """A job type with the share of another tenant; `more`: this would do more work."""

    badge: TenantBadge
    throughput: float
    gain: float | None
    more: bool


@dataclass(frozen=True, slots=True)
class OwnRow:
    """A job type with its own share, and the rows of other shares."""

    name: str
    own: float
    others: tuple[OtherRow, ...]


def others_context(compared: SharesCompared | None) -> dict[str, Any]:
    """Return the rows and their heading; `others` is empty, and `traded` None, if not known."""
    rows = [_row(one) for one in compared.rows] if compared else []
    work = compared.work if compared else None
    return {
        "others": rows,
        "others_title": _title(rows),
        "others_round": compared.number if compared else None,
        "traded": work,
        "traded_title": _traded_title(work) if work else "",
    }


def _traded_title(work: QuotaWork) -> str:
    """Return "Trades make its quota do 4.6 % more work"."""
    if not work.without:
        return _("Trades give it quota that its jobs can use")
    change = round(100 * (work.traded / work.without - 1), 1)
    text = (
        _("Trades make its quota do {percent} % more work")
        if change >= 0
        else _("Trades make its quota do {percent} % less work")
    )
    return text.format(percent=thousands(abs(change), 1))


def _row(one: JobTypeShares) -> OwnRow:
    others = tuple(
        OtherRow(
            badge_of(other.tenant),
            other.throughput,
            100 * (other.throughput / one.own - 1) if one.own else None,
            round(other.throughput, PLACES) > round(one.own, PLACES),
        )
        for other in one.others
    )
    return OwnRow(one.profile or _("no job type"), one.own, others)


def _title(rows: list[OwnRow]) -> str:
    """Return whether another tenant's share would do more work."""
    envied = sum(other.more for row in rows for other in row.others)
    if not envied:
        return _("No other share would do more of its work")
    compared = sum(len(row.others) for row in rows)
    return _("{count} of {compared} other shares would do more of its work").format(
        count=thousands(envied), compared=thousands(compared)
    )
