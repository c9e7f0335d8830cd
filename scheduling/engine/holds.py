"""Holds the credit of a round's new terms, so that no credit is promised twice.

A round decides on the credit of its snapshot. Until it is applied, a round of another pool may have
promised the same credit, or somebody may have given it away. So the writer locks the budgets before
its first write, in the order of tenants, and looks again. Terms that do not fit any more are left
out, in the order of the decision, renewals first. They stay locked until the round is committed:
two rounds cannot both find the same credit free. Part of the one writer.
Source: docs/adr/0169-one-credit-limit.md.
"""

from __future__ import annotations

from evenshare_core.domain.decision import Grant, Renew
from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.money.fixed_point import LIMIT_MICRO, to_credits
from scheduling.engine.write import RoundWrite
from tenants.selectors.credit import CreditLeft, credit_left


def hold_credit(write: RoundWrite) -> None:
    """Lock the budgets of all tenants that borrow; note what they cannot pay any more."""
    decision = write.plan.decision
    terms: list[Grant | Renew] = [*decision.renewals, *decision.grants]
    worst = [(item, write.worst_micro(item)) for item in terms]
    tenants = {item.tenant for item, micro in worst if micro}
    if not tenants:
        return
    left = credit_left(write.plan.book, tenants, write.at, lock=True)
    promised: dict[int, int] = dict.fromkeys(tenants, 0)
    for item, micro in worst:
        sum_micro = promised.get(item.tenant, 0) + micro
        why = _refusal(left.get(item.tenant), sum_micro) if micro else None
        if why is None:
            promised[item.tenant] = sum_micro
        elif isinstance(item, Renew):
            write.unfunded.leases[item.lease] = why
        else:
            write.unfunded.jobs[item.job] = why


def write_reserved(write: RoundWrite) -> None:
    """Add the worst case of the terms that were written; the database refuses what is too much."""
    tenants = [tenant for tenant, amount in write.reserved.items() if amount]
    write.cursor.execute(
        # In the order of tenants, as metering and the ledger lock them: no deadlock.
        """
        WITH locked AS (
            SELECT b.id, x.amount FROM tenants_budget b
            JOIN unnest(%s::bigint[], %s::numeric[]) x(tenant, amount) ON x.tenant = b.tenant_id
            WHERE b.book = %s ORDER BY b.tenant_id FOR UPDATE OF b
        )
        UPDATE tenants_budget b SET reserved = b.reserved + locked.amount
        FROM locked WHERE b.id = locked.id
        """,
        [
            tenants,
            [to_credits(write.reserved[tenant]) for tenant in tenants],
            write.plan.book,
        ],
    )


def _refusal(left: CreditLeft | None, promised_micro: int) -> SupersededReason | None:
    """Return why `promised_micro` cannot be promised; None if it can."""
    if promised_micro > (LIMIT_MICRO - 1 if left is None else left.storable_micro):
        return SupersededReason.UNSTORABLE
    if left is None or left.micro is None or promised_micro <= left.micro:
        return None
    over_credit = left.credit_micro is not None and promised_micro > left.credit_micro
    return SupersededReason.CREDIT if over_credit else SupersededReason.BUDGET
