"""Add sweeps, the places of jobs in them, and the jobs that a job waits for."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

from tenants.bounds import bound_columns
from tenants.row_security import OF_JOB, OF_TENANT, secure_rows
from tenants.shapes import OBJECT, TEXT, ByName, hold_condition, hold_shapes

ID = ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False, verbose_name="ID"))
PROTECT = django.db.models.deletion.PROTECT


class Migration(migrations.Migration):
    dependencies = (
        ("scheduling", "0053_job_lists"),
        ("tenants", "0002_squashed_0015_numbers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    )

    operations = (
        migrations.CreateModel(
            name="Sweep",
            fields=[
                ID,
                ("uid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("tenant", models.ForeignKey("tenants.Tenant", PROTECT, related_name="sweeps")),
                ("pool", models.ForeignKey("scheduling.Pool", PROTECT, related_name="sweeps")),
                ("name", models.CharField(max_length=63)),
                (
                    "submitted_by",
                    models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, null=True, blank=True),
                ),
                ("submitted_at", models.DateTimeField()),
                ("created_at", models.DateTimeField()),
                ("spec", models.JSONField(help_text="The request as it was submitted.")),
                (
                    "at_once",
                    models.PositiveIntegerField(
                        null=True,
                        blank=True,
                        help_text="How many of its jobs may be free at a time; null: all.",
                    ),
                ),
                ("cancel_asked_at", models.DateTimeField(null=True, blank=True)),
                (
                    "origin",
                    models.ForeignKey(
                        "scheduling.Sweep",
                        PROTECT,
                        null=True,
                        blank=True,
                        related_name="resubmissions",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "-id"], name="sweep_by_tenant")],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(at_once__isnull=True) | Q(at_once__gte=1),
                        name="sweep_at_least_1_at_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="JobDependency",
            fields=[
                ID,
                (
                    "job",
                    models.ForeignKey(
                        "scheduling.Job",
                        django.db.models.deletion.CASCADE,
                        related_name="dependencies",
                    ),
                ),
                ("needs", models.ForeignKey("scheduling.Job", PROTECT, related_name="dependents")),
                (
                    "condition",
                    models.CharField(
                        max_length=9,
                        choices=[("after_ok", "has succeeded"), ("after_any", "has ended")],
                    ),
                ),
                (
                    "is_broken",
                    models.BooleanField(
                        default=False,
                        db_default=False,
                        help_text="The job was cancelled because of this one.",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=["job", "needs"], name="dependency_once"),
                    models.CheckConstraint(condition=~Q(job=F("needs")), name="dependency_of_other"),
                ],
            },
        ),
        migrations.AddField(
            "job",
            "sweep",
            models.ForeignKey(
                "scheduling.Sweep",
                PROTECT,
                null=True,
                blank=True,
                related_name="jobs",
                db_index=False,
            ),
        ),
        migrations.AddField(
            "job",
            "sweep_index",
            models.PositiveIntegerField(
                null=True, blank=True, help_text="Its place among the jobs of its sweep, from 0."
            ),
        ),
        migrations.AddField(
            "job",
            "parameters",
            models.JSONField(
                null=True,
                blank=True,
                help_text="Of a sweep's job: its parameters, and an array's index.",
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=Q(sweep__isnull=True, sweep_index__isnull=True)
                | Q(sweep__isnull=False, sweep_index__isnull=False),
                name="job_has_index_in_sweep",
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.UniqueConstraint(
                fields=["sweep", "sweep_index"],
                condition=Q(sweep__isnull=False),
                name="job_once_in_sweep",
            ),
        ),
        migrations.AddIndex(
            "job",
            models.Index(
                fields=["pool", "sweep"],
                condition=Q(state="pending") & ~Q(holds=[]),
                name="job_held",
            ),
        ),
        secure_rows({"scheduling_sweep": OF_TENANT, "scheduling_jobdependency": OF_JOB}),
        hold_shapes(
            "scheduling", {("sweep", "spec"): OBJECT, ("job", "parameters"): ByName(TEXT)}
        ),
        hold_condition(
            "scheduling_jobdependency",
            "condition_known",
            "condition IN ('after_ok', 'after_any')",
        ),
        bound_columns("scheduling"),
    )
