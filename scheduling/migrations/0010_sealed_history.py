"""Events, terms and rounds are sealed; round bytes are append-only in every partition.

The privileges by default give the application role all tables that the owner makes, partitions
too. A partition needs none: rows are reached through the table that it is a part of.
"""

from django.db import migrations

SEALED = ("scheduling_leaseevent", "scheduling_leaseterm", "scheduling_round")

SEAL = "".join(f"SELECT evenshare_seal_table('{table}');" for table in SEALED)
UNSEAL = "".join(f"SELECT evenshare_unseal_table('{table}');" for table in SEALED)

BLOBS = """
-- Nobody but its owner has a right on a partition of its own, and it refuses TRUNCATE.
CREATE FUNCTION evenshare_guard_blob_day(part regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE grantee text;
BEGIN
    FOR grantee IN
        SELECT DISTINCT CASE WHEN acl.grantee = 0 THEN 'PUBLIC'
               ELSE quote_ident(pg_get_userbyid(acl.grantee)) END
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) acl
        WHERE c.oid = part AND acl.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', part, grantee);
    END LOOP;
    EXECUTE format(
        'CREATE TRIGGER no_truncate BEFORE TRUNCATE ON %s'
        ' FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change()', part);
END
$$;
REVOKE EXECUTE ON FUNCTION evenshare_guard_blob_day(regclass) FROM PUBLIC;

-- A trigger for each row of the whole is one of each part, of those to come too.
CREATE TRIGGER scheduling_roundblob_append_only BEFORE UPDATE OR DELETE ON scheduling_roundblob
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER scheduling_roundblob_no_truncate BEFORE TRUNCATE ON scheduling_roundblob
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
SELECT evenshare_guard_blob_day(inhrelid) FROM pg_inherits
WHERE inhparent = 'scheduling_roundblob'::regclass;

CREATE OR REPLACE FUNCTION evenshare_make_blob_day(wanted date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE name text := 'scheduling_roundblob_' || to_char(wanted, 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NULL
       AND NOT EXISTS (SELECT FROM scheduling_roundblob_rest WHERE day = wanted) THEN
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF scheduling_roundblob FOR VALUES FROM (%L) TO (%L)',
            name, wanted, wanted + 1);
        PERFORM evenshare_guard_blob_day(to_regclass(name));
    END IF;
END
$$;
"""

DROP_BLOBS = """
CREATE OR REPLACE FUNCTION evenshare_make_blob_day(wanted date) RETURNS void
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
DROP TRIGGER scheduling_roundblob_append_only ON scheduling_roundblob;
DROP TRIGGER scheduling_roundblob_no_truncate ON scheduling_roundblob;
DO $$
DECLARE part regclass;
BEGIN
    FOR part IN SELECT inhrelid FROM pg_inherits
                WHERE inhparent = 'scheduling_roundblob'::regclass
    LOOP
        EXECUTE format('DROP TRIGGER no_truncate ON %s', part);
    END LOOP;
END
$$;
DROP FUNCTION evenshare_guard_blob_day(regclass);
"""


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0009_job_comment"), ("tenants", "0006_seals")]

    operations = [
        migrations.RunSQL(SEAL, UNSEAL),
        migrations.RunSQL(BLOBS, DROP_BLOBS),
    ]
