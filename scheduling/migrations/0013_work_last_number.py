"""The virtual executor remembers what it was asked to stop, and which lease came last."""

from django.db import migrations, models

# What was launched or stopped: a launch that is still to come must not be refused.
LAST = """
UPDATE scheduling_virtualwork work SET last_number = greatest(
    (SELECT max(lease.number) FROM scheduling_lease lease
     WHERE lease.job_id = work.job_id AND lease.state NOT IN ('waiting', 'launching')),
    nullif(split_part(work.token, '-', 3), '')::integer,
    0)
"""


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0012_job_backoff")]

    operations = [
        migrations.AddField(
            model_name="virtualwork",
            name="last_number",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="virtualwork",
            name="stopped_us",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.RunSQL(LAST, migrations.RunSQL.noop),
    ]
