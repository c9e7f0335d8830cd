"""A job without a utility has NULL there: requests used to store an empty object."""

from django.db import migrations

UNSTATED = """
UPDATE scheduling_job SET utility = NULL WHERE utility IS NOT NULL AND NOT utility ? 'kind';
"""


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0039_node_engine_state"),)

    operations = (migrations.RunSQL(UNSTATED, migrations.RunSQL.noop),)
