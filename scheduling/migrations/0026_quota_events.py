"""Quotas of a stretch of time are looked up for contribution statements."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("scheduling", "0025_surcharge"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="leaseevent",
            index=models.Index(
                condition=models.Q(("kind", "entitled")),
                fields=["pool", "at", "number"],
                name="event_quota_by_time",
            ),
        ),
    ]
