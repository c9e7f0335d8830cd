"""No JSON of another shape than code reads, no word that is none of its column's choices.

The last migration of the app: `hold_choices` holds the choices as they are here.
"""

from django.db import migrations

from tenants.shapes import (
    OBJECT,
    TEXT,
    Columns,
    WithFields,
    Many,
    WholeNumber,
    hold_choices,
    hold_names,
    hold_shapes,
)

SHAPES: Columns = {
    ("auditrecord", "before"): OBJECT,
    ("auditrecord", "after"): OBJECT,
    ("idempotentreply", "made"): Many(TEXT),
    ("logscrub", "faults"): Many(WithFields(place=WholeNumber(), text=TEXT)),
}


class Migration(migrations.Migration):
    dependencies = (("tenants", "0013_unsettled_spend"),)

    operations = (hold_shapes("tenants", SHAPES), hold_choices("tenants"), hold_names("tenants"))
