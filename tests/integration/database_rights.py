"""Lists the rights that the application's role has on each table of the database."""

from __future__ import annotations

from django.db import connections

# History: the application may only insert into these tables. It may change all others.
APPEND_ONLY = (
    "billing_entry",
    "billing_loggedtransfer",
    "billing_postedprice",
    "billing_transfer",
    "billing_usageline",
    "billing_usageshare",
    "scheduling_jobanswer",
    "scheduling_leaseevent",
    "scheduling_leaseterm",
    "scheduling_pseudonymkey",
    "scheduling_round",
    "scheduling_roundblob",
    "scheduling_roundbundle",
    "scheduling_roundstate",
    "scheduling_verification",
    "tenants_auditrecord",
    "tenants_logentry",
    "tenants_logkey",
    "tenants_lognode",
    "tenants_transparencylog",
)
# The owner's trigger on entries writes balances, and another one copies a tenant's budget to a
# limit. A trigger on files of rounds allows only changes of their state.
COLUMNS = {
    "billing_account": {"overrun"},
    "scheduling_roundarchive": {"checked_at", "problem", "dropped_at", "deleted_at"},
}
# Tables with day partitions.
PARTITIONED = ("scheduling_roundblob", "scheduling_roundbundle", "scheduling_roundstate")
# Each row has a seal. Day partitions have hashes in their round or in its log record.
SEALED = tuple(table for table in APPEND_ONLY if table not in PARTITIONED)

_ROLE = "evenshare_app"
_RIGHTS = """
SELECT c.relname, c.relispartition, ARRAY(
    SELECT what FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE',
                                  'REFERENCES', 'TRIGGER']) what
    WHERE has_table_privilege(%s, c.oid, what)
), ARRAY(
    SELECT attname::text FROM pg_attribute a
    WHERE a.attrelid = c.oid AND attnum > 0 AND NOT attisdropped
      AND has_column_privilege(%s, c.oid, attnum, 'UPDATE')
      AND NOT has_table_privilege(%s, c.oid, 'UPDATE')
)
FROM pg_class c
WHERE relkind IN ('r', 'p', 'v', 'm', 'f') AND relnamespace = 'public'::regnamespace
ORDER BY relname
"""
_REFUSING = """
SELECT DISTINCT tgrelid::regclass::text, CASE WHEN tgtype & 32 > 0 THEN 'TRUNCATE' ELSE 'rows' END
FROM pg_trigger WHERE tgfoid = 'evenshare_refuse_change'::regproc AND tgenabled = 'O'
  AND (tgtype & 32 > 0 OR tgtype & 24 = 24)
"""
_SEALS = """
SELECT tgrelid::regclass::text FROM pg_trigger
WHERE tgname ~ '_zz_seal$' AND tgenabled = 'O'
"""


def wrong_rights() -> list[str]:
    """Return every table on which the role has wrong rights; run as the owner."""
    with connections["owner"].cursor() as cursor:
        cursor.execute(_RIGHTS, [_ROLE] * 3)
        tables = cursor.fetchall()
    return [
        f"{name}: {sorted(rights)} and columns {sorted(columns)}"
        for name, is_partition, rights, columns in tables
        if (set(rights), set(columns)) != _expected(name, is_partition=is_partition)
    ]


def _expected(table: str, *, is_partition: bool) -> tuple[set[str], set[str]]:
    if is_partition:
        return set(), set()
    if table in APPEND_ONLY or table in COLUMNS:
        return {"SELECT", "INSERT"}, COLUMNS.get(table, set())
    return {"SELECT", "INSERT", "UPDATE", "DELETE"}, set()


def unguarded_tables() -> list[str]:
    """Return append-only tables and partitions without guard or seal, and other tables with one."""
    with connections["owner"].cursor() as cursor:
        cursor.execute(_REFUSING)
        refusing = set(cursor.fetchall())
        cursor.execute(_SEALS)
        sealed = {name for (name,) in cursor.fetchall()}
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits i JOIN pg_class c"
                       " ON c.oid = inhrelid WHERE c.relkind = 'r'")  # fmt: skip
        parts = [name for (name,) in cursor.fetchall()]
    wanted = {(table, what) for table in (*APPEND_ONLY, *parts) for what in ("rows", "TRUNCATE")}
    return sorted({table for table, _ in wanted ^ refusing} | (sealed ^ set(SEALED)))


def partitions() -> list[str]:
    with connections["owner"].cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits"
                       " WHERE inhparent = ANY (%s::regclass[])", [list(PARTITIONED)])  # fmt: skip
        return sorted(name for (name,) in cursor.fetchall())
