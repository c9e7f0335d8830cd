"""Add the index of ended jobs by their keys, and the function that finds jobs by it.

The index of a million jobs is made in two minutes; meanwhile no job can change.
"""

from pathlib import Path

from django.db import migrations

FORWARD = (Path(__file__).parent / "0053_job_lists.sql").read_text()
BACK = """
DROP FUNCTION evenshare_find_jobs;
DROP FUNCTION evenshare_tenants_among;
DROP INDEX job_by_keys;
DROP FUNCTION evenshare_job_keys;
"""


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0052_daily_work"),)

    operations = (migrations.RunSQL(FORWARD, BACK),)
