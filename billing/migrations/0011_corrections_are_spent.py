"""What corrections changed of settled charges counts in the budget of the charge's period.

Corrections that were posted before this counted nowhere; their part is added to the days of the
charges that they correct. A charge that was given back beyond what it was comes to nothing.
"""

from django.db import migrations

COUNT = """
WITH RECURSIVE chain AS (
    SELECT charge.id AS charge_id, correction.id
    FROM billing_transfer correction
    JOIN billing_transfer charge ON charge.id = correction.corrects_id
    WHERE correction.code = 'correction' AND charge.code = 'usage'
    UNION ALL
    SELECT chain.charge_id, correction.id
    FROM billing_transfer correction JOIN chain ON correction.corrects_id = chain.id
), sides AS (
    SELECT chain.charge_id, chain.id,
           coalesce(-sum(e.amount) FILTER (WHERE e.amount < 0), 0) AS paid,
           coalesce(sum(e.amount) FILTER (WHERE e.amount > 0), 0) AS back
    FROM chain
    JOIN billing_transfer charge ON charge.id = chain.charge_id
    JOIN billing_account a ON a.book_id = charge.book_id AND a.tenant_id = charge.tenant_id
    JOIN billing_entry e ON e.transfer_id = chain.id AND e.account_id = a.id
    GROUP BY 1, 2
), changes AS (
    SELECT charge_id,
           sum(CASE WHEN paid > back THEN paid WHEN back > paid THEN -back ELSE 0 END) AS change
    FROM sides GROUP BY 1
), days AS (
    SELECT charge.tenant_id, b.slug AS book, (charge.hour AT TIME ZONE 'UTC')::date AS day,
           sum(greatest(changes.change,
               (SELECT coalesce(sum(e.amount), 0)
                FROM billing_entry e JOIN billing_account a ON a.id = e.account_id
                WHERE e.transfer_id = charge.id AND e.amount < 0
                  AND a.tenant_id = charge.tenant_id))) AS change
    FROM changes
    JOIN billing_transfer charge ON charge.id = changes.charge_id
    JOIN billing_book b ON b.id = charge.book_id
    GROUP BY 1, 2, 3
)
UPDATE tenants_dailyspend kept SET amount = kept.amount + days.change
FROM days
WHERE kept.tenant_id = days.tenant_id AND kept.book = days.book AND kept.day = days.day
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0010_credit"), ("tenants", "0011_budget_periods")]

    operations = [migrations.RunSQL(COUNT, migrations.RunSQL.noop)]
