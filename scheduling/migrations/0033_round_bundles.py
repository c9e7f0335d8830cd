"""Bundles of rounds in day partitions, the keys of their pseudonyms, how far rounds are sealed.

Bundles and the bytes of rounds are dropped by one function, after the same time
(docs/adr/0198-sums-are-history.md).
"""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns

KEY = "scheduling_pseudonymkey"
PROTECT = f"""
ALTER TABLE {KEY} ADD CONSTRAINT pseudonym_key_of_32_bytes CHECK (octet_length(secret) = 32);
CREATE TRIGGER {KEY}_append_only BEFORE UPDATE OR DELETE ON {KEY}
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER {KEY}_no_truncate BEFORE TRUNCATE ON {KEY}
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
SELECT evenshare_seal_table('{KEY}');
"""
UNPROTECT = f"""
SELECT evenshare_unseal_table('{KEY}');
DROP TRIGGER {KEY}_append_only ON {KEY};
DROP TRIGGER {KEY}_no_truncate ON {KEY};
ALTER TABLE {KEY} DROP CONSTRAINT pseudonym_key_of_32_bytes;
"""

BUNDLES = """
CREATE TABLE scheduling_roundbundle (
    day date NOT NULL,
    pool_id bigint NOT NULL,
    number bigint NOT NULL,
    sha256 varchar(64) NOT NULL,
    data bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (day, pool_id, number)
) PARTITION BY RANGE (day);

CREATE TABLE scheduling_roundbundle_rest PARTITION OF scheduling_roundbundle DEFAULT;

-- A trigger for each row of the whole is one of each part, of those to come too.
CREATE TRIGGER scheduling_roundbundle_append_only BEFORE UPDATE OR DELETE
    ON scheduling_roundbundle FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER scheduling_roundbundle_no_truncate BEFORE TRUNCATE
    ON scheduling_roundbundle FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
SELECT evenshare_guard_blob_day('scheduling_roundbundle_rest'::regclass);

CREATE FUNCTION evenshare_make_bundle_day(wanted date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE name text := 'scheduling_roundbundle_' || to_char(wanted, 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NULL
       AND NOT EXISTS (SELECT FROM scheduling_roundbundle_rest WHERE day = wanted) THEN
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF scheduling_roundbundle FOR VALUES FROM (%L) TO (%L)',
            name, wanted, wanted + 1);
        PERFORM evenshare_guard_blob_day(to_regclass(name));
    END IF;
END
$$;
"""
DROP_BUNDLES = """
DROP FUNCTION evenshare_make_bundle_day(date);
DROP TABLE scheduling_roundbundle;
"""

# Drops whole days older than `keep_days`, at least 7 of which stay. Returns how many.
_DROP_DAYS = """
CREATE OR REPLACE FUNCTION evenshare_drop_blob_days(keep_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE part record; days date[] := '{{}}';
BEGIN
    FOR part IN
        SELECT child.relname, to_date(right(child.relname, 8), 'YYYYMMDD') AS day
        FROM pg_inherits
        JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent IN ({parents})
          AND child.relname ~ '_[0-9]{{8}}$'
          AND to_date(right(child.relname, 8), 'YYYYMMDD')
              < current_date - greatest(keep_days, 7)
    LOOP
        EXECUTE format('DROP TABLE %I', part.relname);
        days := array_append(days, part.day);
    END LOOP;
    RETURN (SELECT count(DISTINCT day) FROM unnest(days) day);
END
$$;
"""
DROP_BOTH = _DROP_DAYS.format(
    parents="'scheduling_roundblob'::regclass, 'scheduling_roundbundle'::regclass"
)
DROP_BLOBS_ALONE = _DROP_DAYS.format(parents="'scheduling_roundblob'::regclass")


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
        for table in (KEY, "scheduling_roundbundle"):
            cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {quoted}")


class Migration(migrations.Migration):

    dependencies = [
        ('scheduling', '0032_profiling_runs'),
    ]

    operations = [
        migrations.CreateModel(
            name='RoundBundle',
            fields=[
                ('day', models.DateField()),
                ('number', models.BigIntegerField()),
                ('sha256', models.CharField(max_length=64)),
                ('data', models.BinaryField()),
                ('pk', models.CompositePrimaryKey('day', 'pool_id', 'number', blank=True, editable=False, primary_key=True, serialize=False)),
            ],
            options={
                'db_table': 'scheduling_roundbundle',
                'managed': False,
            },
        ),
        migrations.CreateModel(
            name='RoundSealing',
            fields=[
                ('pool', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='sealing', serialize=False, to='scheduling.pool')),
                ('first', models.BigIntegerField(default=0)),
                ('number', models.BigIntegerField(default=0)),
                ('sealed_at', models.DateTimeField(help_text='Wall time.', null=True)),
                ('findings', models.JSONField(default=list)),
                ('failure', models.CharField(blank=True, default='', max_length=255)),
            ],
        ),
        migrations.CreateModel(
            name='PseudonymKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('secret', models.BinaryField()),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='scheduling.pool')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('pool', 'day'), name='pseudonym_key_once_a_day')],
            },
        ),
        migrations.RunSQL(PROTECT, UNPROTECT),
        migrations.RunSQL(BUNDLES, DROP_BUNDLES),
        bound_columns("scheduling"),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
        migrations.RunSQL(DROP_BOTH, DROP_BLOBS_ALONE),
    ]
