"""What a pool's executor has to know of its engine."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0036_round_archive"),)

    operations = (
        migrations.AddField(
            model_name="pool",
            name="executor_options",
            field=models.JSONField(
                blank=True, db_default={}, default=dict, help_text="What the executor has to know."
            ),
        ),
    )
