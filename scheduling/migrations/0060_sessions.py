"""Interactive jobs: their kind and limits, and one-time codes to enter them."""

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.bounds import bound_columns
from tenants.row_security import OF_JOB, secure_rows
from tenants.shapes import hold_condition

KINDS = ("notebook", "shell")


class Migration(migrations.Migration):
    dependencies = (
        ("scheduling", "0059_lease_length_comparisons"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    )

    operations = (
        migrations.AddField(
            "job",
            "session",
            models.CharField(
                max_length=15,
                choices=[(kind, kind) for kind in KINDS],
                default="",
                db_default="",
                blank=True,
            ),
        ),
        migrations.AddField(
            "job",
            "session_idle_s",
            models.PositiveIntegerField(
                null=True, blank=True, help_text="Ends after this time without use; null: the default."
            ),
        ),
        migrations.AddField(
            "job",
            "session_s",
            models.PositiveIntegerField(
                null=True, blank=True, help_text="Its time limit, over all leases; null: none."
            ),
        ),
        migrations.AddField(
            "job",
            "session_shared",
            models.BooleanField(
                default=False, db_default=False, help_text="Members of its tenant may open it too."
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(
                condition=Q(session__in=KINDS)
                | Q(
                    session="",
                    session_idle_s__isnull=True,
                    session_s__isnull=True,
                    session_shared=False,
                ),
                name="job_session_has_its_kind",
            ),
        ),
        migrations.CreateModel(
            name="SessionCode",
            fields=[
                ("code_hash", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("expires_at", models.DateTimeField(help_text="Wall time.")),
                ("job", models.ForeignKey("scheduling.job", models.CASCADE, related_name="+")),
                (
                    "user",
                    models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+"),
                ),
            ],
        ),
        secure_rows({"scheduling_sessioncode": OF_JOB}),
        bound_columns("scheduling"),
        hold_condition("scheduling_job", "session_known", f"session IN {('', *KINDS)}"),
    )
