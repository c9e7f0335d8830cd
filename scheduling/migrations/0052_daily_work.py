"""Add a job's tags, its priority within its tenant, and the holds that keep it from starting."""

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

HOLDS = (
    ("tenant", "held by its tenant"),
    ("operator", "held by an operator"),
    ("dependency", "waiting for another job"),
    ("sweep", "waiting for its turn in the sweep"),
)


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0051_job_gpu_time"),)

    operations = (
        migrations.AddField(
            "job",
            "tags",
            ArrayField(models.SlugField(max_length=31), default=list, db_default=[], blank=True),
        ),
        migrations.AddField(
            "job",
            "priority",
            models.SmallIntegerField(
                default=0,
                db_default=0,
                help_text="Orders the jobs of one tenant only; higher first.",
            ),
        ),
        migrations.AddField(
            "job",
            "holds",
            ArrayField(
                models.CharField(max_length=15, choices=HOLDS),
                default=list,
                db_default=[],
                blank=True,
                help_text="Why the job may not start yet; empty if it may.",
            ),
        ),
        migrations.AddField(
            "job",
            "not_before",
            models.DateTimeField(
                null=True,
                blank=True,
                help_text="Earliest start that its tenant wishes, in pool time.",
            ),
        ),
        migrations.AddField(
            "job",
            "eligible_at",
            models.DateTimeField(
                null=True,
                blank=True,
                help_text="When its last hold ended, in pool time; null: it was never held.",
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=models.Q(priority__gte=-100, priority__lte=100),
                name="job_priority_bounded",
            ),
        ),
    )
