"""The database refuses negative counts.

The last migration of the app that adds a whole number ends with `hold_counts`.
"""

from django.db import migrations

from tenants.shapes import hold_counts


class Migration(migrations.Migration):
    dependencies = (("tenants", "0014_rows"),)

    operations = (hold_counts("tenants"),)
