"""Logs that nobody bends: append-only, sealed, and checked by the database as they are written.

A leaf's hash and a node's hash are those of RFC 6962 of what they stand for, and entries are
numbered without gaps: a bug of ours can write no wrong hash. Who owns the tables can, which the
signed heads find that others have kept.
"""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

from tenants.bounds import bound_columns

TABLES = ("tenants_transparencylog", "tenants_logentry", "tenants_lognode", "tenants_logkey")

GUARDS = """
ALTER TABLE tenants_logentry ADD CONSTRAINT log_entry_hash_of_its_record
    CHECK (leaf_hash = sha256('\\x00'::bytea || record));
ALTER TABLE tenants_logkey ADD CONSTRAINT log_key_of_32_bytes CHECK (length(public) = 32);
-- Hashes do not compress.
ALTER TABLE tenants_logentry ALTER COLUMN leaf_hash SET STORAGE PLAIN;
ALTER TABLE tenants_lognode ALTER COLUMN hash SET STORAGE PLAIN;

CREATE FUNCTION tenants_guard_log_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.index <> coalesce((SELECT max(e.index) + 1 FROM public.tenants_logentry e
                              WHERE e.log_id = NEW.log_id), 0) THEN
        RAISE EXCEPTION 'entry % is not the next of log %', NEW.index, NEW.log_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'log_entry_without_gaps';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER tenants_logentry_guard BEFORE INSERT ON tenants_logentry
    FOR EACH ROW EXECUTE FUNCTION tenants_guard_log_entry();

CREATE FUNCTION tenants_guard_log_node() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE below bytea;
BEGIN
    IF NEW.level = 1 THEN
        SELECT string_agg(e.leaf_hash, ''::bytea ORDER BY e.index) INTO below
        FROM public.tenants_logentry e
        WHERE e.log_id = NEW.log_id AND e.index IN (2 * NEW.index, 2 * NEW.index + 1);
    ELSE
        SELECT string_agg(n.hash, ''::bytea ORDER BY n.index) INTO below
        FROM public.tenants_lognode n
        WHERE n.log_id = NEW.log_id AND n.level = NEW.level - 1
          AND n.index IN (2 * NEW.index, 2 * NEW.index + 1);
    END IF;
    IF length(below) IS DISTINCT FROM 64 OR NEW.hash <> sha256('\\x01'::bytea || below) THEN
        RAISE EXCEPTION 'the hash at level %, % of log % is not that of its two children',
            NEW.level, NEW.index, NEW.log_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'log_node_of_its_children';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER tenants_lognode_guard BEFORE INSERT ON tenants_lognode
    FOR EACH ROW EXECUTE FUNCTION tenants_guard_log_node();
"""
DROP_GUARDS = """
DROP TRIGGER tenants_lognode_guard ON tenants_lognode;
DROP FUNCTION tenants_guard_log_node();
DROP TRIGGER tenants_logentry_guard ON tenants_logentry;
DROP FUNCTION tenants_guard_log_entry();
ALTER TABLE tenants_logkey DROP CONSTRAINT log_key_of_32_bytes;
ALTER TABLE tenants_logentry DROP CONSTRAINT log_entry_hash_of_its_record;
"""
PROTECT = "".join(
    f"""
    SELECT evenshare_seal_table('{table}');
    CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table}
        FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
    CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON {table}
        FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
    """
    for table in TABLES
)
EXPOSE = "".join(
    f"""
    DROP TRIGGER {table}_append_only ON {table};
    DROP TRIGGER {table}_no_truncate ON {table};
    SELECT evenshare_unseal_table('{table}');
    """
    for table in TABLES
)


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
        for table in TABLES:
            cursor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {quoted}")


class Migration(migrations.Migration):
    dependencies = [("tenants", "0011_budget_periods")]

    operations = [
        migrations.CreateModel(
            name='TransparencyLog',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('origin', models.CharField(max_length=200, unique=True)),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name='LogKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public', models.BinaryField()),
                ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('until', models.DateTimeField(null=True)),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('until__isnull', True), ('until__gte', models.F('since')), _connector='OR'), name='log_key_in_order')],
            },
        ),
        migrations.CreateModel(
            name='LogEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('index', models.BigIntegerField()),
                ('record', models.BinaryField()),
                ('leaf_hash', models.BinaryField()),
                ('log', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.transparencylog')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('log', 'index'), name='log_entry_once'), models.CheckConstraint(condition=models.Q(('index__gte', 0)), name='log_entry_from_0')],
            },
        ),
        migrations.CreateModel(
            name='LogNode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('level', models.PositiveSmallIntegerField()),
                ('index', models.BigIntegerField()),
                ('hash', models.BinaryField()),
                ('log', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.transparencylog')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('log', 'level', 'index'), name='log_node_once'), models.CheckConstraint(condition=models.Q(('index__gte', 0), ('level__gte', 1), ('level__lte', 62)), name='log_node_in_a_tree')],
            },
        ),
        migrations.CreateModel(
            name='LogScrub',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=15)),
                ('place', models.BigIntegerField(default=0)),
                ('size', models.BigIntegerField(default=0)),
                ('root', models.CharField(default='', max_length=64)),
                ('faults', models.JSONField(default=list)),
                ('checked_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('log', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.transparencylog')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('log', 'kind'), name='log_scrub_once')],
            },
        ),
        migrations.RunSQL(GUARDS, DROP_GUARDS),
        migrations.RunSQL(PROTECT, EXPOSE),
        migrations.RunPython(revoke_change, migrations.RunPython.noop),
        bound_columns("tenants"),
    ]
