"""Rows of one tenant are not there for another one (tenants/row_security.py)."""

from django.db import migrations

from tenants.row_security import DROP_FUNCTIONS, MAKE_FUNCTIONS, OF_TENANT, secure_rows


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_bounds")]

    operations = [
        migrations.RunSQL(MAKE_FUNCTIONS, DROP_FUNCTIONS),
        secure_rows(
            {
                "tenants_quota": OF_TENANT,
                "tenants_budget": OF_TENANT,
                "tenants_idempotentreply": OF_TENANT,
            }
        ),
    ]
