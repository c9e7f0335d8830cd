"""Rows of one tenant are not there for another one (tenants/row_security.py)."""

from django.db import migrations

from tenants.row_security import OF_JOB, OF_LEASE, OF_TENANT, secure_rows


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0015_bounds"), ("tenants", "0009_row_security")]

    operations = [
        secure_rows(
            {
                "scheduling_job": OF_TENANT,
                "scheduling_profile": OF_TENANT,
                "scheduling_arrival": OF_TENANT,
                "scheduling_virtualwork": OF_JOB,
                "scheduling_lease": OF_TENANT,
                "scheduling_leaseslot": OF_LEASE,
                "scheduling_leaseterm": OF_LEASE,
                "scheduling_leaseevent": OF_TENANT,
                "scheduling_intent": OF_LEASE,
            }
        )
    ]
