"""No row of history comes ahead of its pool's counters, so that nobody stops a pool by adding one.

The application's role may add rows of rounds, and nobody may remove them: a row for the next round
would have made each try of it fail for good. A counter moves first, by one; rows are those of the
newest number; and at commit the round and what it left have to be there
(docs/adr/0206-no-row-ahead-of-its-pool.md).
"""

from django.db import migrations

# Each reads as the owner: row security holds the role that inserts.
GUARDS = """
CREATE FUNCTION evenshare_guard_round_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE newest bigint;
BEGIN
    SELECT next_round - 1 INTO newest FROM scheduling_poolfence WHERE pool_id = NEW.pool_id;
    IF NEW.number IS DISTINCT FROM newest THEN
        RAISE EXCEPTION 'row of round % in %: the newest round of pool % is %',
            NEW.number, TG_ARGV[0], NEW.pool_id, newest
            USING ERRCODE = 'check_violation', CONSTRAINT = 'round_row_of_the_newest';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER scheduling_round_newest BEFORE INSERT ON scheduling_round
    FOR EACH ROW EXECUTE FUNCTION evenshare_guard_round_row('scheduling_round');
CREATE TRIGGER scheduling_roundblob_newest BEFORE INSERT ON scheduling_roundblob
    FOR EACH ROW EXECUTE FUNCTION evenshare_guard_round_row('scheduling_roundblob');

CREATE FUNCTION evenshare_guard_state_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE newest bigint;
BEGIN
    SELECT next_round - 1 INTO newest FROM scheduling_poolfence WHERE pool_id = NEW.pool_id;
    IF NEW.number IS DISTINCT FROM newest THEN
        RAISE EXCEPTION 'state of round %: the newest round of pool % is %',
            NEW.number, NEW.pool_id, newest
            USING ERRCODE = 'check_violation', CONSTRAINT = 'round_row_of_the_newest';
    END IF;
    IF EXISTS (SELECT FROM scheduling_roundstate
               WHERE pool_id = NEW.pool_id AND number = NEW.number) THEN
        RAISE EXCEPTION 'round % of pool % has left a state already', NEW.number, NEW.pool_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'round_state_once';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER scheduling_roundstate_newest BEFORE INSERT ON scheduling_roundstate
    FOR EACH ROW EXECUTE FUNCTION evenshare_guard_state_row();

CREATE FUNCTION evenshare_guard_bundle_row() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE sealed bigint;
BEGIN
    SELECT number INTO sealed FROM scheduling_roundsealing WHERE pool_id = NEW.pool_id;
    IF NEW.number IS DISTINCT FROM sealed THEN
        RAISE EXCEPTION 'bundle of round %: pool % is sealed up to %',
            NEW.number, NEW.pool_id, sealed
            USING ERRCODE = 'check_violation', CONSTRAINT = 'bundle_of_the_newest_sealed';
    END IF;
    IF EXISTS (SELECT FROM scheduling_roundbundle
               WHERE pool_id = NEW.pool_id AND number = NEW.number) THEN
        RAISE EXCEPTION 'round % of pool % has a bundle already', NEW.number, NEW.pool_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'bundle_once';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER scheduling_roundbundle_newest BEFORE INSERT ON scheduling_roundbundle
    FOR EACH ROW EXECUTE FUNCTION evenshare_guard_bundle_row();

-- Once for each statement: rounds write events by the thousand.
CREATE FUNCTION evenshare_guard_lease_events() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE ahead record;
BEGIN
    SELECT e.pool_id, e.last, f.next_event INTO ahead
    FROM (SELECT pool_id, max(number) AS last FROM added GROUP BY pool_id) e
    JOIN scheduling_poolfence f ON f.pool_id = e.pool_id
    WHERE e.last >= f.next_event
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'event % of pool %: its next one is %',
            ahead.last, ahead.pool_id, ahead.next_event
            USING ERRCODE = 'check_violation', CONSTRAINT = 'lease_event_not_ahead';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER scheduling_leaseevent_not_ahead AFTER INSERT ON scheduling_leaseevent
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION evenshare_guard_lease_events();

CREATE FUNCTION evenshare_guard_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.next_round NOT IN (OLD.next_round, OLD.next_round + 1)
       OR NEW.next_event < OLD.next_event THEN
        RAISE EXCEPTION 'pool %: next round % after %, next event % after %', NEW.pool_id,
            NEW.next_round, OLD.next_round, NEW.next_event, OLD.next_event
            USING ERRCODE = 'check_violation', CONSTRAINT = 'fence_counts_up';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER scheduling_poolfence_counts_up BEFORE UPDATE ON scheduling_poolfence
    FOR EACH ROW
    WHEN (OLD.next_round <> NEW.next_round OR OLD.next_event <> NEW.next_event)
    EXECUTE FUNCTION evenshare_guard_fence();

CREATE FUNCTION evenshare_guard_whole_round() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM scheduling_round
                   WHERE pool_id = NEW.pool_id AND number = NEW.next_round - 1)
       OR NOT EXISTS (SELECT FROM scheduling_roundstate
                      WHERE pool_id = NEW.pool_id AND number = NEW.next_round - 1) THEN
        RAISE EXCEPTION 'round % of pool % was counted without its row or what it left',
            NEW.next_round - 1, NEW.pool_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'round_with_what_it_left';
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER round_with_what_it_left AFTER UPDATE ON scheduling_poolfence
    DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (OLD.next_round <> NEW.next_round)
    EXECUTE FUNCTION evenshare_guard_whole_round();
"""
DROP_GUARDS = """
DROP TRIGGER round_with_what_it_left ON scheduling_poolfence;
DROP TRIGGER scheduling_poolfence_counts_up ON scheduling_poolfence;
DROP TRIGGER scheduling_leaseevent_not_ahead ON scheduling_leaseevent;
DROP TRIGGER scheduling_roundbundle_newest ON scheduling_roundbundle;
DROP TRIGGER scheduling_roundstate_newest ON scheduling_roundstate;
DROP TRIGGER scheduling_roundblob_newest ON scheduling_roundblob;
DROP TRIGGER scheduling_round_newest ON scheduling_round;
DROP FUNCTION evenshare_guard_whole_round();
DROP FUNCTION evenshare_guard_fence();
DROP FUNCTION evenshare_guard_lease_events();
DROP FUNCTION evenshare_guard_bundle_row();
DROP FUNCTION evenshare_guard_state_row();
DROP FUNCTION evenshare_guard_round_row();
"""

_DROP_DAYS = """
-- Drops whole days older than `keep_days`, at least 7 of which stay. Returns how many. The state
-- of each pool's newest round stays whatever its day: the next round begins with it.
CREATE OR REPLACE FUNCTION evenshare_drop_state_days(keep_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE part record; dropped integer := 0;
BEGIN
    FOR part IN
        SELECT child.relname FROM pg_inherits
        JOIN pg_class child ON child.oid = inhrelid
        WHERE inhparent = 'scheduling_roundstate'::regclass
          AND child.relname ~ '^scheduling_roundstate_[0-9]{{8}}$'
          AND to_date(right(child.relname, 8), 'YYYYMMDD')
              < current_date - greatest(keep_days, 7)
        ORDER BY child.relname
    LOOP
        EXECUTE format('ALTER TABLE scheduling_roundstate DETACH PARTITION %I', part.relname);
        EXECUTE format(
            'INSERT INTO scheduling_roundstate SELECT old.* FROM %1$I old WHERE old.number >= ('
            ' SELECT max(number) FROM %1$I WHERE pool_id = old.pool_id) AND NOT EXISTS ('
            ' SELECT FROM scheduling_roundstate s'
            ' WHERE s.pool_id = old.pool_id AND s.number > old.number){newest}', part.relname);
        EXECUTE format('DROP TABLE %I', part.relname);
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END
$$;
"""
# A state that is not the newest round's may not be moved, and the next round needs none of them.
DROP_DAYS = _DROP_DAYS.format(
    newest=" AND EXISTS (SELECT FROM scheduling_poolfence f"
    " WHERE f.pool_id = old.pool_id AND f.next_round = old.number + 1)"
)
DROP_DAYS_OF_BEFORE = _DROP_DAYS.format(newest="")


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0036_round_archive")]

    operations = [
        migrations.RunSQL(GUARDS, DROP_GUARDS),
        migrations.RunSQL(DROP_DAYS, DROP_DAYS_OF_BEFORE),
    ]
