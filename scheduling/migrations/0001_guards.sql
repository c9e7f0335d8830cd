-- Rules that the database enforces in scheduling's tables, whatever the code does.

-- Each day of rounds is a partition of these three tables. The application's role owns nothing, so
-- it can drop neither triggers nor partitions. Functions of the owner create the partitions of a
-- day, and drop them after they were moved to files.
CREATE TABLE scheduling_roundblob (
    day date NOT NULL,
    pool_id bigint NOT NULL,
    number bigint NOT NULL,
    snapshot bytea STORAGE EXTERNAL NOT NULL,
    decision bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (day, pool_id, number)
) PARTITION BY RANGE (day);

CREATE TABLE scheduling_roundbundle (
    day date NOT NULL,
    pool_id bigint NOT NULL,
    number bigint NOT NULL,
    sha256 varchar(64) NOT NULL,
    data bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (day, pool_id, number)
) PARTITION BY RANGE (day);

-- The state with which the next round begins (docs/adr/0198-sums-are-history.md).
CREATE TABLE scheduling_roundstate (
    day date NOT NULL,
    pool_id bigint NOT NULL,
    number bigint NOT NULL,
    at timestamptz NOT NULL,
    policy varchar(31) NOT NULL,
    policy_version varchar(31) NOT NULL,
    service bytea STORAGE EXTERNAL NOT NULL,
    memory bytea STORAGE EXTERNAL NOT NULL,
    prices jsonb NOT NULL,
    entitled jsonb NOT NULL,
    -- The day comes last, because a round's state is looked up without its day.
    PRIMARY KEY (pool_id, number, day)
) PARTITION BY RANGE (day);

-- Only the owner has rights on a partition, and a partition refuses TRUNCATE. By default privileges
-- the application's role gets rights on all new tables of the owner, partitions included. It needs
-- none there, because rows are accessed with the rights of the parent table.
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

-- The days of partitions older than `keep_days`. At least the last 7 days stay in the database.
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

-- Drops the partitions of a day if all their parts are in files; otherwise returns false and drops
-- nothing. The state of each pool's newest round stays, because the next round begins with it.
CREATE FUNCTION evenshare_drop_archived_day(wanted date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE left_over boolean; old text; stamp text := to_char(wanted, 'YYYYMMDD');
BEGIN
    IF wanted >= current_date - 7 THEN
        RAISE EXCEPTION 'rounds of the last 7 days stay in the database';
    END IF;
    -- Readers lock the parent tables first too.
    LOCK TABLE scheduling_roundblob, scheduling_roundbundle, scheduling_roundstate
        IN ACCESS EXCLUSIVE MODE;
    -- Rows in a default partition stay there: they do not belong to the day that is dropped.
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

-- The columns that describe a file never change, and a file is dropped or deleted only once.
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

ALTER TABLE scheduling_pseudonymkey ADD CONSTRAINT pseudonym_key_of_32_bytes
    CHECK (octet_length(secret) = 32);
