"""Corrections of transfers; the correction of a charge also changes the spent part of its budget.

A correction is a new transfer that names its source. Its change of the borrower's account counts on
the day of the charged hour. So the budget of that day gets the credits back, even if the correction
comes in a later period. Source: docs/money.md.
"""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.db.models import F

from billing.ledger import LedgerError, Posting, post_transfer, transfer_id
from billing.models import Account, Transfer
from billing.selectors.corrections import CorrectedCharge, corrected_charges
from evenshare_core.money.fixed_point import to_credits
from tenants.models import DailySpend
from tenants.scopes import site_scope


class OverCorrectedError(LedgerError):
    """Corrections would refund more than was charged."""


def correct_transfer(
    source: Transfer, *, entries: Sequence[tuple[int, int]], effective_at: datetime, why: str
) -> Transfer:
    """Post a correction of `source` once, as an additional transfer with a reason.

    `entries`: (account id, micro-credits), negative for payments.

    Raises:
        OverCorrectedError: with earlier corrections, it would refund more than the charge.
        UnbalancedError, ConflictError, CreditLimitError: see `billing.ledger`; nothing was posted.
    """
    posting = Posting(
        id=transfer_id("correction", source.pk, why),
        book_id=source.book_id,
        code=Transfer.Code.CORRECTION,
        effective_at=effective_at,
        entries=entries,
        pool_id=source.pool_id,
        tenant_id=source.tenant_id,
        corrects_id=source.pk,
        data={"why": why},
    )
    with site_scope(), transaction.atomic():
        # The locks, in the ledger's order, serialize corrections of the same charge.
        accounts = Account.objects.filter(pk__in={account for account, _ in entries})
        list(accounts.select_for_update().order_by("pk"))
        charge = _charge_of(source)
        before = _corrected(charge)
        posted = post_transfer(posting)
        after = _corrected(charge)
        if after is not None:
            _count(before, after)
    return posted


def _charge_of(source: Transfer) -> Transfer:
    """Return the original transfer, because a correction may be corrected, too."""
    while source.corrects is not None:
        source = source.corrects
    return source


def _corrected(charge: Transfer) -> CorrectedCharge | None:
    return next(iter(corrected_charges(charge.pk)), None)


def _count(before: CorrectedCharge | None, after: CorrectedCharge) -> None:
    """Add the change to the day of the charge; a posted correction is not added again."""
    change_micro = before.change_micro if before else 0
    if after.change_micro < min(-after.charged_micro, change_micro):
        raise OverCorrectedError(
            f"transfer {after.transfer} charged {after.charged_micro} micro-credits, and"
            f" {-after.change_micro} would be refunded: refund the excess as an allowance"
        )
    spent_micro = after.spent_change_micro - (before.spent_change_micro if before else 0)
    if not spent_micro:
        return
    day = {"tenant_id": after.tenant_id, "book": after.book, "day": after.day}
    row, _ = DailySpend.objects.get_or_create(**day, defaults={"amount": 0})
    amount = F("amount") + to_credits(spent_micro)
    DailySpend.objects.filter(pk=row.pk).update(amount=amount)
