"""Constraints against values that Postgres can store but our code cannot read.

They are NaN and infinite numbers, and instants and days outside of the years 1 to 9999. For
migrations: the last one of an app that adds columns runs `bound_columns` again, and
`tests/integration/test_bounds.py` reports forgotten columns.

Source: docs/adr/0228-shapes-of-rows.md.
"""

from django.db import migrations

# In Postgres NaN is greater than Infinity, so one comparison refuses both.
_BOUND = """
DO $$
DECLARE it record; bounds text;
BEGIN
    FOR it IN
        SELECT c.oid, c.relname, a.attname, a.atttypid
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
          AND NOT c.relispartition AND starts_with(c.relname, '{app}_')
          AND a.atttypid IN ('numeric'::regtype, 'float8'::regtype, 'float4'::regtype,
                             'timestamptz'::regtype, 'timestamp'::regtype, 'date'::regtype)
    LOOP
        bounds := CASE
            WHEN it.atttypid IN ('numeric'::regtype, 'float8'::regtype, 'float4'::regtype)
            THEN '%1$I > ''-Infinity'' AND %1$I < ''Infinity'''
            WHEN it.atttypid = 'timestamptz'::regtype
            THEN '%1$I >= ''0001-01-01 00:00:00+00'''
                 ' AND %1$I < ''10000-01-01 00:00:00+00'''
            ELSE '%1$I >= ''0001-01-01'' AND %1$I < ''10000-01-01'''
        END;
        IF NOT EXISTS (SELECT FROM pg_constraint
                       WHERE conrelid = it.oid
                         AND conname = left(it.relname || '_' || it.attname, 55) || '_bounded')
        THEN
            EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (' || format(bounds, it.attname)
                || ')', it.relname, left(it.relname || '_' || it.attname, 55) || '_bounded');
        END IF;
    END LOOP;
END
$$
"""
_UNBOUND = """
DO $$
DECLARE it record;
BEGIN
    FOR it IN
        SELECT conrelid::regclass AS name, conname FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND conname LIKE '%\\_bounded'
          AND starts_with(conname, '{app}_') AND coninhcount = 0
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', it.name, it.conname);
    END LOOP;
END
$$
"""


def bound_columns(app: str) -> migrations.RunSQL:
    """Bound every number and instant of an app's tables that has no bounds yet."""
    return migrations.RunSQL(_BOUND.replace("{app}", app), _UNBOUND.replace("{app}", app))
