"""An operator may let the queue add to a price; by default it does not. Prices are forecast.

`theta` is wider because a policy may set it from what jobs were worth (docs/adr/0165).
"""

from decimal import Decimal

from django.db import migrations, models

from tenants.bounds import bound_columns


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0024_job_plans"), ("tenants", "0009_row_security")]

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
        migrations.CreateModel(
            "PriceForecast",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True,
                                           verbose_name="ID")),
                ("round", models.BigIntegerField()),
                ("policy", models.SlugField(max_length=31)),
                ("at", models.DateTimeField()),
                ("step_s", models.PositiveIntegerField()),
                ("p10", models.JSONField(default=list)),
                ("p50", models.JSONField(default=list)),
                ("p90", models.JSONField(default=list)),
                ("reason", models.CharField(max_length=31, default="", blank=True)),
                ("kept", models.BooleanField(default=False)),
                ("points", models.PositiveIntegerField(default=0)),
                ("hits", models.PositiveIntegerField(default=0)),
                (
                    "gpu_type",
                    models.ForeignKey(
                        "scheduling.gputype", on_delete=models.CASCADE, related_name="+"
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        "scheduling.pool",
                        on_delete=models.CASCADE,
                        related_name="price_forecasts",
                    ),
                ),
            ],
        ),
        migrations.AddIndex(
            "priceforecast",
            models.Index(fields=["pool", "gpu_type", "-at"], name="price_forecast_by_type"),
        ),
        migrations.AddConstraint(
            "priceforecast",
            models.CheckConstraint(
                condition=models.Q(hits__lte=models.F("points")),
                name="price_forecast_hits_of_points",
            ),
        ),
        bound_columns("scheduling"),
    ]
