"""The database refuses negative counts, and posted prices that no price setting makes.

The last migration of the app that adds a whole number ends with `hold_counts`.
"""

from django.db import migrations

from tenants.shapes import hold_condition, hold_counts, within_reach


class Migration(migrations.Migration):
    dependencies = (("billing", "0015_rows"),)

    operations = (
        hold_counts("billing"),
        # The page of a posted price recomputes it. Pages of income count back from its instant.
        hold_condition(
            "billing_postedprice",
            "of_a_round",
            "base >= 0 AND base < 1000000000000 AND theta >= 1"
            f" AND {within_reach('posted_at')}",
        ),
        # Charts of money draw the hour before and the hour after.
        hold_condition("billing_usageshare", "hour_counted", within_reach("hour")),
        hold_condition("billing_usageline", "hour_counted", within_reach("hour")),
        hold_condition("billing_transfer", "hour_counted", within_reach("hour")),
    )
