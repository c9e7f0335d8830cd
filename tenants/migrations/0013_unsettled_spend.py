"""The days of a tenant's spend also say what is charged and not settled."""

from django.db import migrations, models

from tenants.bounds import bound_columns


class Migration(migrations.Migration):
    dependencies = [("tenants", "0012_transparency")]

    operations = [
        migrations.AddField(
            "dailyspend",
            "unsettled",
            models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20),
        ),
        migrations.AddConstraint(
            "dailyspend",
            models.CheckConstraint(
                condition=models.Q(unsettled__gte=0), name="spend_unsettled_at_least_0"
            ),
        ),
        bound_columns("tenants"),
    ]
