"""A lease may end because its job was quarantined."""

from django.db import migrations, models

from evenshare_core.domain.reasons import EndReason


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0013_work_last_number")]

    operations = [
        migrations.AlterField(
            model_name="lease",
            name="end_reason",
            field=models.CharField(
                blank=True,
                choices=[(reason.value, reason.value) for reason in EndReason],
                default="",
                max_length=31,
            ),
        ),
    ]
