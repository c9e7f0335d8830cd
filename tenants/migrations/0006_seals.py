"""Rows of append-only tables carry a seal: a hash over all their columns, made at insert.

Triggers refuse changes; whoever owns the tables can switch triggers off. The seal is what finds
the changed row afterwards (`billing.checks.seals`, docs/adr/0132-partitions-have-no-rights.md).

`evenshare_seal_table` gives a table its column `seal`, the function `<table>_seal(row)` that
recomputes it, and the trigger that sets it, and seals the rows that are there. A migration that
adds a column to a sealed table calls it again.
"""

from django.db import migrations

SEAL_TABLE = """
CREATE FUNCTION evenshare_seal_table(target regclass) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    name text := (SELECT relname FROM pg_class WHERE oid = target);
    columns text;
BEGIN
    EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS seal bytea', target);
    SELECT string_agg(format('r.%I', attname), ', ' ORDER BY attnum) INTO columns
    FROM pg_attribute
    WHERE attrelid = target AND attnum > 0 AND NOT attisdropped AND attname <> 'seal';
    -- The binary form of a row has its values with their types, and no names.
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION %I(r %s) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE'
        ' AS $$ SELECT sha256(record_send(ROW(%s))) $$',
        name || '_seal', target, columns);
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS'
        ' $$ BEGIN NEW.seal := public.%I(NEW); RETURN NEW; END $$',
        name || '_set_seal', name || '_seal');
    EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', target);
    EXECUTE format('UPDATE %s t SET seal = %I(t)', target, name || '_seal');
    -- Rows that were changed before in this transaction have their references looked at again,
    -- and a table that waits for that cannot be altered.
    SET CONSTRAINTS ALL IMMEDIATE;
    SET CONSTRAINTS ALL DEFERRED;
    EXECUTE format('ALTER TABLE %s ENABLE TRIGGER USER', target);
    EXECUTE format('ALTER TABLE %s ALTER COLUMN seal SET NOT NULL', target);
    -- Triggers run by name: this one comes last, and seals what the others have set.
    EXECUTE format(
        'CREATE OR REPLACE TRIGGER %I BEFORE INSERT ON %s'
        ' FOR EACH ROW EXECUTE FUNCTION %I()',
        name || '_zz_seal', target, name || '_set_seal');
END
$body$;
REVOKE EXECUTE ON FUNCTION evenshare_seal_table(regclass) FROM PUBLIC;

CREATE FUNCTION evenshare_unseal_table(target regclass) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE name text := (SELECT relname FROM pg_class WHERE oid = target);
BEGIN
    EXECUTE format('DROP TRIGGER %I ON %s', name || '_zz_seal', target);
    EXECUTE format('DROP FUNCTION %I()', name || '_set_seal');
    EXECUTE format('DROP FUNCTION %I(%s)', name || '_seal', target);
    EXECUTE format('ALTER TABLE %s DROP COLUMN seal', target);
END
$body$;
REVOKE EXECUTE ON FUNCTION evenshare_unseal_table(regclass) FROM PUBLIC;
"""

DROP_SEAL_TABLE = """
DROP FUNCTION evenshare_seal_table(regclass);
DROP FUNCTION evenshare_unseal_table(regclass);
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_audit")]

    operations = [
        migrations.RunSQL(SEAL_TABLE, DROP_SEAL_TABLE),
        migrations.RunSQL(
            "SELECT evenshare_seal_table('tenants_auditrecord')",
            "SELECT evenshare_unseal_table('tenants_auditrecord')",
        ),
    ]
