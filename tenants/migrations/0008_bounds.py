"""No number that is none, no instant that no calendar has (tenants/bounds.py)."""

from django.db import migrations

from tenants.bounds import bound_columns


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_limits")]

    operations = [bound_columns("tenants")]
