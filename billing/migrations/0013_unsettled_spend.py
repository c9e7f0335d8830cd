"""Charges that no settlement has moved are added to the days that they belong to."""

from django.db import migrations

FILL = """
INSERT INTO tenants_dailyspend AS known (tenant_id, book, day, amount, unsettled)
SELECT line.tenant_id, b.slug, (line.hour AT TIME ZONE 'UTC')::date, 0, sum(line.amount)
FROM billing_usageline line
JOIN billing_book b ON b.id = line.book_id
JOIN billing_metercursor cursor ON cursor.pool_id = line.pool_id
WHERE line.amount > 0 AND line.hour >= cursor.settled_until
GROUP BY 1, 2, 3
ON CONFLICT (tenant_id, book, day) DO UPDATE SET unsettled = excluded.unsettled
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_ledger_log"), ("tenants", "0013_unsettled_spend")]

    operations = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
