"""An operator may let the queue add to a price; by default it does not. Theta may be large.

`theta` is wider because a policy may set it from what jobs were worth (docs/adr/0165).
"""

from decimal import Decimal

from django.db import migrations, models

from tenants.bounds import bound_columns


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0023_trades"), ("tenants", "0009_row_security")]

    operations = [
        migrations.AlterField(
            "pricesetting",
            "theta",
            models.DecimalField(max_digits=12, decimal_places=3, default=Decimal(2)),
        ),
        migrations.AddField(
            "pricesetting",
            "surcharge_cap",
            models.DecimalField(
                max_digits=6, decimal_places=3, default=Decimal(0), db_default=Decimal(0)
            ),
        ),
        migrations.AddField(
            "pricesetting",
            "surcharge_step",
            models.DecimalField(
                max_digits=4, decimal_places=1, default=Decimal(5), db_default=Decimal(5)
            ),
        ),
        migrations.AddConstraint(
            "pricesetting",
            models.CheckConstraint(
                condition=models.Q(
                    surcharge_cap__gte=0, surcharge_step__gt=0, surcharge_step__lte=100
                ),
                name="price_surcharge_in_bounds",
            ),
        ),
        bound_columns("scheduling"),
    ]
