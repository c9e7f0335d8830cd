"""Holds the credit of a round's new terms, so that no credit is promised twice.

A round decides with the credit of its snapshot. Before it is applied, another pool's round may have
promised the same credit, or a user may have transferred it. So the writer locks the budgets before
its first write, in the order of tenants, and checks again. Terms that can no longer be paid are
left out, in the order of the decision, renewals first. The budgets stay locked until the round is
committed, so that two rounds cannot both use the same credit. Source:
docs/adr/0169-one-credit-limit.md.
"""

from evenshare_core.domain.decision import Grant, Renew
from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.money.fixed_point import LIMIT_MICRO, to_credits
from scheduling.engine.write import RoundWrite
from tenants.selectors.credit import CreditLeft, credit_left


def hold_credit(write: RoundWrite) -> None:
    """Lock the budgets of all tenants that borrow; record terms that a tenant can no longer pay."""
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
            write.unfunded_leases[item.lease] = why
        else:
            write.unfunded_jobs[item.job] = why


def write_reserved(write: RoundWrite) -> None:
    """Add the highest possible costs of the written terms to the budgets.

    The database refuses amounts above the credit.
    """
    tenants = [tenant for tenant, amount in write.reserved.items() if amount]
    write.cursor.execute(
        # Lock in the order of tenants, like metering and the ledger, to avoid deadlocks.
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
    if promised_micro > (LIMIT_MICRO - 1 if left is None else left.storable_micro):
        return SupersededReason.UNSTORABLE
    if left is None or left.micro is None or promised_micro <= left.micro:
        return None
    over_credit = left.credit_micro is not None and promised_micro > left.credit_micro
    return SupersededReason.CREDIT if over_credit else SupersededReason.BUDGET
