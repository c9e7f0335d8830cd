"""Days of rounds are moved to files, and leave the database only when they are there.

The functions that dropped days by their age alone are gone: the one that takes their place asks
that each part of a day is in a file that was read back (docs/adr/0204-rounds-move-to-files.md).
"""

import importlib

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns

TABLE = "scheduling_roundarchive"
CHANGEABLE = "checked_at, problem, dropped_at, deleted_at"
GUARD = """
CREATE FUNCTION evenshare_guard_archive() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'UPDATE' THEN
        RAISE EXCEPTION 'files of rounds are append-only';
    END IF;
    IF (OLD.id, OLD.pool_id, OLD.day, OLD.name, OLD.first, OLD.last, OLD.members, OLD.bytes,
        OLD.sha256, OLD.archived_at)
       IS DISTINCT FROM
       (NEW.id, NEW.pool_id, NEW.day, NEW.name, NEW.first, NEW.last, NEW.members, NEW.bytes,
        NEW.sha256, NEW.archived_at)
       OR (OLD.dropped_at IS NOT NULL AND NEW.dropped_at IS DISTINCT FROM OLD.dropped_at)
       OR (OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS DISTINCT FROM OLD.deleted_at) THEN
        RAISE EXCEPTION 'files of rounds are append-only';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER scheduling_roundarchive_guard BEFORE UPDATE OR DELETE ON scheduling_roundarchive
    FOR EACH ROW EXECUTE FUNCTION evenshare_guard_archive();
CREATE TRIGGER scheduling_roundarchive_guard_truncate BEFORE TRUNCATE ON scheduling_roundarchive
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_guard_archive();

-- The days of partitions older than `keep_days`, at least 7 of which stay in the database.
CREATE FUNCTION evenshare_old_round_days(keep_days integer) RETURNS SETOF date
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT DISTINCT to_date(right(child.relname, 8), 'YYYYMMDD') AS day
    FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent IN ('scheduling_roundblob'::regclass, 'scheduling_roundbundle'::regclass,
                        'scheduling_roundstate'::regclass)
      AND child.relname ~ '_[0-9]{8}$'
      AND to_date(right(child.relname, 8), 'YYYYMMDD') < current_date - greatest(keep_days, 7)
    ORDER BY day
$$;

-- Drops the partitions of a day all of whose parts are in files: false, and nothing is dropped,
-- where one is not. The state of each pool's newest round stays: the next round begins with it.
CREATE FUNCTION evenshare_drop_archived_day(wanted date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE left_over boolean; old text; stamp text := to_char(wanted, 'YYYYMMDD');
BEGIN
    IF wanted >= current_date - 7 THEN
        RAISE EXCEPTION 'rounds of the last 7 days stay in the database';
    END IF;
    -- The wholes first, as whoever reads them does.
    LOCK TABLE scheduling_roundblob, scheduling_roundbundle, scheduling_roundstate
        IN ACCESS EXCLUSIVE MODE;
    -- What is in a partition of the rest stays there: it is no part of a day that is dropped.
    WITH stored AS (
        SELECT pool_id, number, 2 AS members FROM scheduling_roundblob
        WHERE day = wanted AND tableoid <> 'scheduling_roundblob_rest'::regclass
        UNION ALL SELECT pool_id, number, 1 FROM scheduling_roundbundle
        WHERE day = wanted AND tableoid <> 'scheduling_roundbundle_rest'::regclass
        UNION ALL SELECT pool_id, number, 3 FROM scheduling_roundstate
        WHERE day = wanted AND tableoid <> 'scheduling_roundstate_rest'::regclass
    ), filed AS (
        SELECT a.id, a.members, sum(s.members) AS stored
        FROM scheduling_roundarchive a
        JOIN stored s ON s.pool_id = a.pool_id AND s.number BETWEEN a.first AND a.last
        WHERE a.day = wanted AND a.dropped_at IS NULL AND a.problem = ''
        GROUP BY a.id, a.members
    )
    SELECT coalesce((SELECT sum(members) FROM stored), 0)
           <> coalesce((SELECT sum(stored) FROM filed), 0)
           OR EXISTS (SELECT FROM filed WHERE filed.members <> filed.stored)
    INTO left_over;
    IF left_over THEN
        RETURN false;
    END IF;
    old := 'scheduling_roundstate_' || stamp;
    IF to_regclass(old) IS NOT NULL THEN
        EXECUTE format('ALTER TABLE scheduling_roundstate DETACH PARTITION %I', old);
        EXECUTE format(
            'INSERT INTO scheduling_roundstate SELECT old.* FROM %1$I old WHERE old.number >= ('
            ' SELECT max(number) FROM %1$I WHERE pool_id = old.pool_id) AND NOT EXISTS ('
            ' SELECT FROM scheduling_roundstate s'
            ' WHERE s.pool_id = old.pool_id AND s.number > old.number)', old);
        EXECUTE format('DROP TABLE %I', old);
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS %I', 'scheduling_roundblob_' || stamp);
    EXECUTE format('DROP TABLE IF EXISTS %I', 'scheduling_roundbundle_' || stamp);
    RETURN true;
END
$$;
DROP FUNCTION evenshare_drop_blob_days(integer);
DROP FUNCTION evenshare_drop_state_days(integer);
"""
_BUNDLES = importlib.import_module("scheduling.migrations.0033_round_bundles")
_STATES = importlib.import_module("scheduling.migrations.0034_round_states").STATES
_DROP_STATES = _STATES[_STATES.index("CREATE FUNCTION evenshare_drop_state_days") :]
UNGUARD = f"""
{_BUNDLES.DROP_BOTH}
{_DROP_STATES}
DROP FUNCTION evenshare_drop_archived_day(date);
DROP FUNCTION evenshare_old_round_days(integer);
DROP TRIGGER scheduling_roundarchive_guard ON scheduling_roundarchive;
DROP TRIGGER scheduling_roundarchive_guard_truncate ON scheduling_roundarchive;
DROP FUNCTION evenshare_guard_archive();
"""


def revoke_change(apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Let the application role change what becomes of a file, and nothing else of its row."""
    role = getattr(settings, "APP_DB_ROLE", "")
    if not role:
        return
    quoted = schema_editor.quote_name(role)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [role])
        if not cursor.fetchone()[0]:
            cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {TABLE} FROM {quoted}")
            cursor.execute(f"GRANT UPDATE ({CHANGEABLE}) ON {TABLE} TO {quoted}")


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0035_verifications")]

    operations = [
        migrations.CreateModel(
            name="RoundArchive",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField()),
                ("name", models.CharField(max_length=255, unique=True)),
                ("first", models.BigIntegerField()),
                ("last", models.BigIntegerField()),
                ("members", models.PositiveIntegerField()),
                ("bytes", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("archived_at", models.DateTimeField(help_text="Wall time.")),
                ("checked_at", models.DateTimeField(help_text="Wall time.")),
                ("problem", models.CharField(blank=True, default="", max_length=255)),
                ("dropped_at", models.DateTimeField(help_text="Wall time.", null=True)),
                ("deleted_at", models.DateTimeField(help_text="Wall time.", null=True)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="scheduling.pool",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["pool", "last"], name="archive_by_round")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("last__gte", models.F("first"))),
                        name="archive_not_empty",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("deleted_at__isnull", True),
                            ("dropped_at__isnull", False),
                            _connector="OR",
                        ),
                        name="archive_dropped_before_deleted",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="RoundArchiving",
            fields=[
                (
                    "pool",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="archiving",
                        serialize=False,
                        to="scheduling.pool",
                    ),
                ),
                ("looked_at", models.DateTimeField(help_text="Wall time.")),
                ("failure", models.CharField(blank=True, default="", max_length=255)),
            ],
        ),
        migrations.RunSQL(GUARD, UNGUARD),
        bound_columns("scheduling"),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
    ]
