"""A line says which remainder its charge took over.

`carried` is null in lines of own GPUs, and in borrowed ones that were charged by themselves and
split by the integrals of idle quota, as all were before. These lines stay as they are
(docs/adr/0199). The table is sealed again, for a seal is over all columns.
"""

from django.db import migrations, models

from tenants.bounds import bound_columns

SEAL = "SELECT evenshare_seal_table('billing_usageline')"


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_row_security"), ("tenants", "0009_row_security")]

    operations = [
        migrations.AddField("usageline", "carried", models.BigIntegerField(null=True)),
        migrations.AddConstraint(
            "usageline",
            models.CheckConstraint(
                condition=models.Q(carried__isnull=True)
                | models.Q(
                    ~models.Q(meter="own"),
                    carried__gte=-1_800_000_000,
                    carried__lt=1_800_000_000,
                ),
                name="usage_carries_half_a_unit_at_most",
            ),
        ),
        migrations.RunSQL(SEAL, SEAL),
        bound_columns("billing"),
    ]
