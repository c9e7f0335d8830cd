"""Leases that an operator writes off, and processes that run on although their lease has ended.

And when leases were last missing from a listing, so that a clock that jumps is no silence.
"""

from django.db import migrations, models

from tenants.shapes import TEXT, ByName, JsonShape, Many, hold_shapes

SHAPES: dict[tuple[str, str], JsonShape] = {
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
        migrations.AddField(
            model_name="executorhealth",
            name="listed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        hold_shapes("scheduling", SHAPES),
    ]
