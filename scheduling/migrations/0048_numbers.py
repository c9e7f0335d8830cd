"""The database refuses negative counts, and instants from which pages cannot count years.

The last migration of the app that adds a whole number ends with `hold_counts`.
"""

from django.db import migrations

from tenants.bounds import bound_columns
from tenants.shapes import hold_condition, hold_counts, within_reach


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0047_starts"),)

    operations = (
        hold_counts("scheduling"),
        # As of all amounts that people write (0228): a posted price takes no larger base.
        hold_condition("scheduling_pricesetting", "base_fits", "base < 1000000000000"),
        # Pages count years back from a pool's present instant, and from its last round to the next.
        hold_condition(
            "scheduling_poolclock", "anchors_counted", within_reach("anchor_pool", "anchor_wall")
        ),
        hold_condition(
            "scheduling_poolfence", "rounds_counted", within_reach("last_at", "last_checked_at")
        ),
        bound_columns("scheduling"),
    )
