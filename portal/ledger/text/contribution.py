"""Texts about a tenant's lending income: sums, lines, use of its quota, fairness."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.utils.translation import gettext as _
from msgspec.structs import replace

from billing.selectors.contribution import Contribution, IncomeSumRow
from billing.selectors.quota_use import QuotaUseItem
from portal.charts.figures import apportion, credits_text, percent, thousands
from portal.common.files import Columns

ZERO = Decimal(0)
COLUMNS: Columns = {
    "counted_at": "counted_at",
    "hour": "hour",
    "round": "round",
    "gpu_type": "gpu_type",
    "borrower": "borrower",
    "lease": "lease",
    "term": "term",
    "starts_at": "starts_at",
    "ends_at": "ends_at",
    "gpus": "gpus",
    "price_credits_per_gpu_h": "price",
    "held_h": "held_h",
    "carried_micro_credits": "carried",
    "charge_credits": "charge",
    "own_part": "own_part",
    "own_part_exact": "own_part_exact",
    "lent_gpu_h": "lent_gpu_h",
    "earned_credits": "earned",
    "transfer": "transfer",
    "charged_until": "charged_until",
    "borne_credits": "borne",
    "earned_borne_credits": "earned_borne",
}


@dataclass(frozen=True, slots=True)
class SumTable:
    """Summed lines: the table's id, title, and heading of the first column."""

    id: str
    title: str
    head: str
    rows: Sequence[IncomeSumRow]

    @property
    def rounded(self) -> list[IncomeSumRow]:
        """Return the rows with two decimals that add up."""
        columns = {
            name: apportion([getattr(row, name) for row in self.rows])
            for name in ("lent_gpu_h", "earned", "borne")
        }
        return [
            replace(row, **{name: values[place] for name, values in columns.items()})
            for place, row in enumerate(self.rows)
        ]


def contribution_headline(tenant: str, shown: Contribution, *, is_own: bool) -> str:
    """Return what a tenant earned in the period."""
    if not shown.total.lines:
        text = _("You earned nothing.") if is_own else _("{tenant} earned nothing.")
    elif is_own:
        text = _("You earned {earned} credits by lending {lent} GPU-hours.")
    else:
        text = _("{tenant} earned {earned} credits by lending {lent} GPU-hours.")
    return text.format(
        tenant=tenant,
        earned=credits_text(shown.total.earned),
        lent=thousands(shown.total.lent_gpu_h, 2),
    )


def quota_use_total(rows: Sequence[QuotaUseItem]) -> QuotaUseItem:
    """Return the sum over all types."""
    _type, *columns = QuotaUseItem.__struct_fields__
    return QuotaUseItem(
        _("Sum"), *(sum((getattr(row, name) for row in rows), ZERO) for name in columns)
    )


def quota_use_text(total: QuotaUseItem) -> str:
    """Return the share of idle quota that was lent, as a heading."""
    idle = total.quota_gpu_h - total.own_gpu_h
    if not total.quota_gpu_h:
        return _("No quota in this period")
    if not idle:
        return _("No quota was idle")
    return _("{part} of the idle quota was lent").format(part=percent(total.lent_gpu_h / idle, 1))
