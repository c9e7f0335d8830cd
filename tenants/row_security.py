"""Row level security: a query in one tenant's scope finds no row of another tenant.

It is the second line of defence, after the filters of views and selectors. If a filter is missing,
the result is empty; if the scope is missing, the query fails. It does not stop an attacker who can
run SQL, because they can also set the scope. Owners of tables are exempt, and so are migrations,
backups and the guards' functions. Source: docs/adr/0135-row-security.md.
"""

from collections.abc import Mapping

from django.db import migrations

# InitPlans: evaluated once per query, not per row.
_ALL = "(SELECT evenshare_sees_all())"
_TENANTS = "(SELECT evenshare_tenants())::bigint[]"

# The condition for the rows that are visible in a tenant's scope. It tests the row's own column, or
# whether the scope shows the row that it refers to.
OF_TENANT = f"tenant_id = ANY ({_TENANTS})"
OF_LEASE = "EXISTS (SELECT FROM scheduling_lease l WHERE l.id = lease_id)"
OF_JOB = "EXISTS (SELECT FROM scheduling_job j WHERE j.id = job_id)"
# An array, so that it is also evaluated once per query: a tenant has few accounts.
OF_ACCOUNT = "account_id = ANY (ARRAY(SELECT a.id FROM billing_account a))"
WITH_A_PART = "EXISTS (SELECT FROM billing_entry e WHERE e.transfer_id = billing_transfer.id)"


def secure_rows(rules: Mapping[str, str]) -> migrations.RunSQL:
    """Return the migration that gives each table its policy; `rules`: the condition by table."""
    make = (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
        f"CREATE POLICY of_scope ON {table} USING ({_ALL} OR {rule});"
        for table, rule in rules.items()
    )
    drop = (
        f"DROP POLICY of_scope ON {table}; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;"
        for table in rules
    )
    return migrations.RunSQL("\n".join(make), "\n".join(drop))
