-- For each kind of what is kept by day (blob, bundle, state), in place of KIND.

-- A round must never fail for want of its day's partition.
CREATE TABLE scheduling_roundKIND_rest PARTITION OF scheduling_roundKIND DEFAULT;

-- A trigger for each row of the whole is one of each part, of those to come too.
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
