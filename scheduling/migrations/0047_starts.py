"""p50 before it was corrected, and the newest estimates of a pool by an index."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0046_write_off")]

    operations = [
        migrations.AddField(
            "startestimate", "raw_p50", models.DateTimeField(blank=True, null=True)
        ),
        migrations.AddIndex(
            "startestimate",
            models.Index(fields=["pool", "-id"], name="estimate_newest", condition=Q(kept=True)),
        ),
    ]
