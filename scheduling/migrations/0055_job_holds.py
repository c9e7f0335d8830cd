"""Add the rules of holds, and the place that a job gets from another job of its tenant."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0059_lease_length_comparisons"),)

    operations = (
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
