-- Run once for each table that is partitioned by day; KIND is blob, bundle or state.

-- The default partition: a round must not fail because its day has no partition.
CREATE TABLE scheduling_roundKIND_rest PARTITION OF scheduling_roundKIND DEFAULT;

-- A row trigger of the parent table also applies to all its partitions, future ones included.
CREATE TRIGGER scheduling_roundKIND_append_only BEFORE UPDATE OR DELETE ON scheduling_roundKIND
    FOR EACH ROW EXECUTE FUNCTION evenshare_refuse_change();
CREATE TRIGGER scheduling_roundKIND_no_truncate BEFORE TRUNCATE ON scheduling_roundKIND
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_refuse_change();
SELECT evenshare_guard_blob_day('scheduling_roundKIND_rest'::regclass);

CREATE FUNCTION evenshare_make_KIND_day(wanted date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE name text := 'scheduling_roundKIND_' || to_char(wanted, 'YYYYMMDD');
BEGIN
    IF to_regclass(name) IS NULL
       AND NOT EXISTS (SELECT FROM scheduling_roundKIND_rest WHERE day = wanted) THEN
        EXECUTE format(
            'CREATE TABLE %I PARTITION OF scheduling_roundKIND FOR VALUES FROM (%L) TO (%L)',
            name, wanted, wanted + 1);
        PERFORM evenshare_guard_blob_day(to_regclass(name));
    END IF;
END
$$;
