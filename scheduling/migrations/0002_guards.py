"""Append-only tables, and round blobs in partitions by day.

The application role owns nothing, so it can neither drop the triggers nor the partitions; two
functions of the owner let it make the partition of a day and drop those that are old enough.
"""

from django.conf import settings
from django.db import migrations

APPEND_ONLY = ("scheduling_leaseevent", "scheduling_leaseterm", "scheduling_round")

BLOBS = """
CREATE TABLE scheduling_roundblob (
    day date NOT NULL,
    pool_id bigint NOT NULL,
    number bigint NOT NULL,
    snapshot bytea STORAGE EXTERNAL NOT NULL,
    decision bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (day, pool_id, number)
) PARTITION BY RANGE (day);

-- A round must never fail for want of its day's partition.
CREATE TABLE scheduling_roundblob_rest PARTITION OF scheduling_roundblob DEFAULT;

CREATE FUNCTION evenshare_make_blob_day(wanted date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE name text := 'scheduling_roundblob_' || to_char(wanted, 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NULL
       AND NOT EXISTS (SELECT FROM scheduling_roundblob_rest WHERE day = wanted) THEN
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF scheduling_roundblob FOR VALUES FROM (%L) TO (%L)',
            name, wanted, wanted + 1);
    END IF;
END
$$;

-- Drops whole days older than `keep_days`, at least 7 of which stay. Returns how many.
CREATE FUNCTION evenshare_drop_blob_days(keep_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE part record; dropped integer := 0;
BEGIN
    FOR part IN
        SELECT child.relname FROM pg_inherits
        JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent = 'scheduling_roundblob'::regclass
          AND child.relname ~ '^scheduling_roundblob_[0-9]{8}$'
          AND to_date(right(child.relname, 8), 'YYYYMMDD')
              < current_date - greatest(keep_days, 7)
    LOOP
        EXECUTE format('DROP TABLE %I', part.relname);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;
"""

DROP_BLOBS = """
DROP FUNCTION evenshare_drop_blob_days(integer);
DROP FUNCTION evenshare_make_blob_day(date);
DROP TABLE scheduling_roundblob;
"""


def _protect(table: str) -> str:
    return f"""
    CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
        FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
    CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
    """


def revoke_change(apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Take UPDATE, DELETE and TRUNCATE from the application role, where it is not the owner."""
    role = getattr(settings, "APP_DB_ROLE", "")
    if not role:
        return
    quoted = schema_editor.quote_name(role)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [role])
        if cursor.fetchone()[0]:
            return
        for table in (*APPEND_ONLY, "scheduling_roundblob", "scheduling_roundblob_rest"):
            cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {quoted}")


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0001_initial"), ("tenants", "0003_guards")]

    operations = [
        *(
            migrations.RunSQL(
                _protect(table),
                f"DROP TRIGGER {table}_append_only ON {table};"
                f"DROP TRIGGER {table}_no_truncate ON {table};",
            )
            for table in APPEND_ONLY
        ),
        migrations.RunSQL(BLOBS, DROP_BLOBS),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
    ]
