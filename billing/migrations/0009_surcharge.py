"""A posted price says what the queue added to it, and by which setting (docs/adr/0165).

The columns are null in prices of types without a surcharge, as in all that were posted before.
The table is sealed again, for a seal is over all columns.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

import billing.models
from tenants.bounds import bound_columns

SEAL = "SELECT evenshare_seal_table('billing_postedprice')"
PARTS: dict[str, models.Field[Any, Any]] = {
    "surcharge": billing.models.CreditField(null=True),
    "queued": models.PositiveIntegerField(null=True),
    "surcharge_step": models.DecimalField(max_digits=6, decimal_places=3, null=True),
    "surcharge_cap": models.DecimalField(max_digits=6, decimal_places=3, null=True),
}
NONE = models.Q(**{f"{name}__isnull": True for name in PARTS})
WHOLE = models.Q(surcharge__gte=0, surcharge__lte=models.F("price")) & models.Q(
    **{f"{name}__isnull": False for name in PARTS if name != "surcharge"}
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0008_income_by_instant"), ("tenants", "0009_row_security")]

    operations = [
        migrations.AlterField(
            "postedprice", "theta", models.DecimalField(max_digits=12, decimal_places=3)
        ),
        *(migrations.AddField("postedprice", name, field) for name, field in PARTS.items()),
        migrations.AddConstraint(
            "postedprice",
            models.CheckConstraint(
                condition=NONE | WHOLE, name="price_surcharge_whole_or_none"
            ),
        ),
        migrations.RunSQL(SEAL, SEAL),
        bound_columns("billing"),
    ]
