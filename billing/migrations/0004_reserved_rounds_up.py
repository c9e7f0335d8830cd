"""What rounds reserved for terms that are open still was rounded half to even: round it up.

A term's worst case is rounded up from here on, where it is reserved and where its charge replaces
it; a term that was open meanwhile would leave a micro-credit behind.
"""

from typing import Any

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

HOUR_US = 3_600_000_000

# Terms that the meter has not closed: as `reserved_covers_open_terms` finds them.
OPEN = """
WITH opened AS (
    SELECT lease_id, first_open FROM unnest(%(leases)s::bigint[], %(terms)s::int[])
        AS held (lease_id, first_open)
    UNION
    SELECT lease_id, 1 FROM scheduling_leaseevent
    WHERE pool_id = %(pool)s AND number > %(number)s AND kind = 'granted'
)
SELECT lease.tenant_id, pool.book,
       (term.borrowed * (term.price * 1000000)
        * (extract(epoch FROM term.expires_at - term.starts_at) * 1000000))::numeric(60, 0)
FROM opened
JOIN scheduling_leaseterm term
     ON term.lease_id = opened.lease_id AND term.number >= opened.first_open
JOIN scheduling_lease lease ON lease.id = term.lease_id
JOIN scheduling_pool pool ON pool.id = lease.pool_id
WHERE term.borrowed > 0 AND term.price > 0
"""


def round_up(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    change_reserved(apps, schema_editor, 1)


def round_half_even(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    change_reserved(apps, schema_editor, -1)


def change_reserved(apps: Apps, schema_editor: BaseDatabaseSchemaEditor, sign: int) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT id FROM scheduling_pool")
        pools = [pool for (pool,) in cursor.fetchall()]
        meters = {row.pool_id: row for row in apps.get_model("billing", "MeterCursor").objects.all()}
        for pool in pools:
            meter = meters.get(pool)
            first = first_open(meter.state.get("sweep") or {}) if meter else {}
            cursor.execute(
                OPEN,
                {
                    "leases": list(first),
                    "terms": list(first.values()),
                    "pool": pool,
                    "number": meter.event_number if meter else 0,
                },
            )
            missing: dict[tuple[int, str], int] = {}
            for tenant, book, micro_us in cursor.fetchall():
                micro = rounding(int(micro_us))
                missing[tenant, book] = missing.get((tenant, book), 0) + micro
            for (tenant, book), micro in sorted(missing.items()):
                cursor.execute(
                    "UPDATE tenants_budget SET reserved = reserved + %s * 0.000001"
                    " WHERE tenant_id = %s AND book = %s",
                    [sign * micro, tenant, book],
                )


def first_open(sweep: dict[str, Any]) -> dict[int, int]:
    """Lease -> its first term that the stored sweep holds open."""
    open_terms = {int(lease): row[3] for lease, row in sweep.get("open", {}).items()}
    awaited = {row[4]: 1 for row in sweep.get("pending", []) if row[2] == "granted"}
    return open_terms | awaited


def rounding(micro_us: int) -> int:
    """Rounded up, less rounded half to even: 0 or 1."""
    down, rest = divmod(micro_us, HOUR_US)
    if not rest:
        return 0
    is_up = 2 * rest > HOUR_US or (2 * rest == HOUR_US and down % 2 == 1)
    return 0 if is_up else 1


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0003_usage_page'),
        ('scheduling', '0008_simulations'),
        ('tenants', '0005_audit'),
    ]

    operations = [migrations.RunPython(round_up, round_half_even)]
