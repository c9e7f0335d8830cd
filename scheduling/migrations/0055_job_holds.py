"""Add the rules of holds: only waiting jobs are held, and no job arrives before its own time."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0052_daily_work"),)

    operations = (
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
