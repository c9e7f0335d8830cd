"""A line says until when its borrower was charged, and what the operator bears of it.

Both are empty in lines of before: their terms were charged until they ended (docs/adr/0232). The
table is sealed again, for a seal is over all columns.
"""

from django.db import migrations, models

import billing.models
from tenants.bounds import bound_columns

SEAL = "SELECT evenshare_seal_table('billing_usageline')"


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0013_unsettled_spend"),
        ("tenants", "0013_unsettled_spend"),
        ("scheduling", "0001_initial"),
    ]

    operations = [
        migrations.AddField("usageline", "charged_until", models.DateTimeField(null=True)),
        migrations.AddField(
            "usageline", "borne", billing.models.CreditField(default=0, db_default=0)
        ),
        migrations.AddConstraint(
            "usageline",
            models.CheckConstraint(
                condition=models.Q(charged_until__isnull=True, borne=0)
                | models.Q(
                    ~models.Q(meter="own"),
                    charged_until__gte=models.F("starts_at"),
                    charged_until__lt=models.F("ends_at"),
                    borne__gte=0,
                    borne__lt=10**14,
                ),
                name="usage_borne_past_its_charge",
            ),
        ),
        migrations.RunSQL(SEAL, SEAL),
        bound_columns("billing"),
    ]
