"""Add the GPU-time that a job received and deserved until its end; unknown for earlier ends.

An index finds the leases of a tenant that ended in the last days.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0050_late_starts"),)

    operations = (
        migrations.AddField(
            "job",
            "received_gpu_us",
            models.PositiveBigIntegerField(
                null=True,
                blank=True,
                help_text="GPU-time held, in micro-GPU-seconds; null until a round has counted its"
                " end.",
            ),
        ),
        migrations.AddField(
            "job",
            "deserved_gpu_us",
            models.PositiveBigIntegerField(
                null=True,
                blank=True,
                help_text="Its part of the tenant's fair share until its end, in"
                " micro-GPU-seconds.",
            ),
        ),
        migrations.AddIndex(
            "lease", models.Index(fields=["tenant", "ended_at"], name="lease_by_tenant_end")
        ),
    )
