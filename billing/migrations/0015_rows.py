"""No JSON of another shape than code reads, no word that is none of its column's choices.

The last migration of the app: `hold_choices` holds the choices as they are here.
"""

from django.db import migrations

from tenants.shapes import OBJECT, hold_choices, hold_names, hold_shapes

SHAPES = {("transfer", "data"): OBJECT, ("metercursor", "state"): OBJECT}


class Migration(migrations.Migration):
    dependencies = (("billing", "0014_late_rounds"),)

    operations = (hold_shapes("billing", SHAPES), hold_choices("billing"), hold_names("billing"))
