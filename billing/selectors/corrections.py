"""The effect of corrections on the charges of settled hours. Read-only."""

from dataclasses import dataclass
from datetime import UTC, date
from uuid import UUID

from evenshare_core.money.fixed_point import sum_to_micro
from tenants.sql import fetch_rows

# A tenant that is its own lender has two entries in a transfer, one for each side. A refund counts
# by its credit entry, an additional charge by its debit entry.
_CORRECTED = """
WITH RECURSIVE chain AS (
    SELECT charge.id AS charge_id, correction.id
    FROM billing_transfer correction
    JOIN billing_transfer charge ON charge.id = correction.corrects_id
    WHERE correction.code = 'correction' AND charge.code = 'usage'
      AND (%(charge)s::uuid IS NULL OR charge.id = %(charge)s)
    UNION ALL
    SELECT chain.charge_id, correction.id
    FROM billing_transfer correction JOIN chain ON correction.corrects_id = chain.id
), sides AS (
    SELECT chain.charge_id, chain.id,
           coalesce(-sum(e.amount) FILTER (WHERE e.amount < 0), 0.000000) AS paid,
           coalesce(sum(e.amount) FILTER (WHERE e.amount > 0), 0.000000) AS back
    FROM chain
    JOIN billing_transfer charge ON charge.id = chain.charge_id
    JOIN billing_account a ON a.book_id = charge.book_id AND a.tenant_id = charge.tenant_id
    JOIN billing_entry e ON e.transfer_id = chain.id AND e.account_id = a.id
    GROUP BY 1, 2
), changes AS (
    SELECT charge_id, sum(CASE WHEN paid > back THEN paid WHEN back > paid THEN -back
                               ELSE 0.000000 END) AS change
    FROM sides GROUP BY 1
)
SELECT charge.id, b.slug, charge.tenant_id, charge.hour, changes.change,
       (SELECT coalesce(-sum(e.amount), 0.000000)
        FROM billing_entry e JOIN billing_account a ON a.id = e.account_id
        WHERE e.transfer_id = charge.id AND e.amount < 0 AND a.tenant_id = charge.tenant_id)
FROM changes
JOIN billing_transfer charge ON charge.id = changes.charge_id
JOIN billing_book b ON b.id = charge.book_id
ORDER BY charge.hour, charge.id
"""


@dataclass(frozen=True, slots=True)
class CorrectedCharge:
    """The charge of a settled hour, and the change by all its corrections, in micro-credits.

    `day`: the hour's day of pool time, in UTC. `change_micro` is negative after a refund.
    """

    transfer: UUID
    book: str
    tenant_id: int
    day: date
    charged_micro: int
    change_micro: int

    @property
    def spent_change_micro(self) -> int:
        """Return the change of the spent credits; a charge cannot fall below zero."""
        return max(-self.charged_micro, self.change_micro)


def corrected_charges(charge: UUID | None = None) -> list[CorrectedCharge]:
    """Return the charges with corrections: all, or the given one if it has any. A single query."""
    rows = fetch_rows(_CORRECTED, {"charge": charge})
    return [
        CorrectedCharge(
            transfer, book, tenant, hour.astimezone(UTC).date(),
            sum_to_micro(charged), sum_to_micro(change),
        )
        for transfer, book, tenant, hour, change, charged in rows
    ]  # fmt: skip # rows of what belongs together
