"""Leases that an operator writes off, and processes that run on although their lease has ended."""

from django.db import migrations, models

from tenants.shapes import TEXT, ByName, Many, hold_shapes

SHAPES = {
    ("executorhealth", "written_off"): Many(TEXT),
    ("executorhealth", "orphans"): ByName(TEXT),
}


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0045_rows")]

    operations = [
        migrations.AddField(
            model_name="executorhealth",
            name="written_off",
            field=models.JSONField(blank=True, db_default=[], default=list),
        ),
        migrations.AddField(
            model_name="executorhealth",
            name="orphans",
            field=models.JSONField(blank=True, db_default={}, default=dict),
        ),
        hold_shapes("scheduling", SHAPES),
    ]
