"""Rows of one tenant are not there for another one (tenants/row_security.py)."""

from django.db import migrations

from tenants.row_security import OF_ACCOUNT, OF_TENANT, WITH_A_PART, secure_rows


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_bounds"), ("tenants", "0009_row_security")]

    operations = [
        secure_rows(
            {
                "billing_account": OF_TENANT,
                "billing_transfer": WITH_A_PART,
                "billing_entry": OF_ACCOUNT,
                "billing_usageline": OF_TENANT,
                "billing_usageshare": OF_ACCOUNT,
            }
        )
    ]
