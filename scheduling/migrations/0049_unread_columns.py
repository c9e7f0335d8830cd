"""Drop columns that nothing reads: bounds of a gang, which always were its GPUs, and `ps_slots`.

The way back adds the columns with a default, and without the condition on the bounds.
"""

from django.db import migrations, models

# The condition on the bounds goes with its columns.
DROP = """
ALTER TABLE scheduling_job DROP COLUMN gpus_min, DROP COLUMN gpus_max;
ALTER TABLE scheduling_node DROP COLUMN ps_slots;
"""
ADD = """
ALTER TABLE scheduling_job ADD COLUMN gpus_min integer NOT NULL DEFAULT 1,
    ADD COLUMN gpus_max integer NOT NULL DEFAULT 1;
ALTER TABLE scheduling_node ADD COLUMN ps_slots integer NOT NULL DEFAULT 0;
"""


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0001_squashed_0048_numbers"),)

    operations = (
        migrations.RunSQL(
            DROP,
            ADD,
            state_operations=(
                migrations.RemoveConstraint("job", "job_gang_bounds"),
                migrations.RemoveField("job", "gpus_min"),
                migrations.RemoveField("job", "gpus_max"),
                migrations.RemoveField("node", "ps_slots"),
            ),
        ),
        migrations.AddConstraint(
            "job",
            models.CheckConstraint(condition=models.Q(gpus__gte=1), name="job_gpus_at_least_1"),
        ),
    )
