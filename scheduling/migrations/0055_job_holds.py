"""Add the rules of holds, places that jobs exchange, and equal shares of a tenant's people."""

from django.db import migrations, models
from django.db.models import F, Q

from tenants.row_security import OF_TENANT, secure_rows


class Migration(migrations.Migration):
    dependencies = (
        ("scheduling", "0054_sweeps"),
        ("tenants", "0002_squashed_0015_numbers"),
    )

    operations = (
        migrations.CreateModel(
            name="EqualPeople",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=models.deletion.PROTECT,
                        related_name="+",
                        to="scheduling.pool",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=models.deletion.PROTECT, related_name="+", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("pool", "tenant"), name="equal_people_once")
                ],
            },
        ),
        secure_rows({"scheduling_equalpeople": OF_TENANT}),
        migrations.AddField(
            "job",
            "place_at",
            models.DateTimeField(
                null=True,
                blank=True,
                help_text="Its arrival for rounds, after an exchange within its tenant; null: its own.",
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=Q(holds=[]) | Q(state__in=("pending", "cancelled")),
                name="job_held_only_while_waiting",
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=Q(not_before__isnull=True)
                | ~Q(holds=[])
                | Q(eligible_at__isnull=False, eligible_at__gte=F("not_before")),
                name="job_arrives_not_before_its_time",
            ),
        ),
    )
