"""How a pool's executor answers: its circuit breaker, and leases that it leaves out."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.bounds import bound_columns


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0037_executor_options"),)

    operations = (
        migrations.CreateModel(
            name="ExecutorHealth",
            fields=[
                (
                    "pool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="executor_health",
                        serialize=False,
                        to="scheduling.pool",
                    ),
                ),
                ("failures", models.PositiveIntegerField(db_default=0, default=0)),
                ("failing_since", models.DateTimeField(blank=True, null=True)),
                ("open_until", models.DateTimeField(blank=True, null=True)),
                ("error", models.CharField(blank=True, db_default="", default="", max_length=400)),
                ("missing", models.JSONField(blank=True, db_default={}, default=dict)),
                (
                    "launched",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Launched leases when they were last compared.",
                    ),
                ),
                ("frozen_since", models.DateTimeField(blank=True, null=True)),
                ("accepted", models.JSONField(blank=True, db_default=[], default=list)),
            ],
        ),
        bound_columns("scheduling"),
    )
