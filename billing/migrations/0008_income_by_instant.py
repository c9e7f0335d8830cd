"""A line says which remainder its charge took over, and a lender's weight may be long.

`carried` is null in lines of own GPUs, and in borrowed ones that were charged by themselves and
split by the integrals of idle quota, as all were before. These lines stay as they are
(docs/adr/0141). Both tables are sealed again, for a seal is over all columns.
"""

from django.db import migrations, models

from tenants.bounds import bound_columns

SEAL = """
SELECT evenshare_seal_table('billing_usageline');
SELECT evenshare_seal_table('billing_usageshare');
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_row_security"), ("tenants", "0009_row_security")]

    operations = [
        migrations.AddField("usageline", "carried", models.BigIntegerField(null=True)),
        migrations.AlterField(
            "usageshare", "weight", models.DecimalField(max_digits=37, decimal_places=0)
        ),
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
