-- Rules that the database enforces, for all apps and for the tables of the first migration.

-- Tables are append-only by triggers with this function.
CREATE FUNCTION evenshare_refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% on % is refused: the table is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation',
              HINT = 'Correct by adding a new row.';
END
$$;

-- Rows of append-only tables have a seal: a hash over all their columns, computed at insert.
-- Triggers refuse changes, but the owner of the tables can switch triggers off. The seal reveals
-- such a change (billing/checks/seals.py, docs/adr/0132-partitions-have-no-rights.md).
--
-- This function adds the column `seal` to a table, the function `<table>_seal(row)` that computes
-- it, and the trigger that sets it. It also seals the existing rows. A migration that adds a column
-- to a sealed table calls it again.
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
    -- Rows changed earlier in this transaction have pending checks of their references, and a
    -- table with pending checks cannot be altered.
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

-- The tenants whose rows a query sees (tenants/row_security.py).
CREATE FUNCTION evenshare_sees_all() RETURNS boolean LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE scope text := coalesce(current_setting('evenshare.scope', true), '');
BEGIN
    IF scope = '' THEN
        RAISE EXCEPTION 'rows of tenants were queried without a scope' USING
            ERRCODE = 'insufficient_privilege',
            HINT = 'Use a scope of tenants/scopes.py; by hand, SET evenshare.scope = ''site''.';
    END IF;
    RETURN scope ~ '^(site|pool [0-9]+)$';
END
$$;
CREATE FUNCTION evenshare_tenants() RETURNS bigint[] LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN starts_with(current_setting('evenshare.scope', true), '{')
                THEN current_setting('evenshare.scope', true) ELSE '{}' END::bigint[]
$$;

-- Each submission updates a bucket. Its level may be lost, so it needs no write-ahead log.
ALTER TABLE tenants_ratebucket SET UNLOGGED;

-- After a change of the limit, the database stores by how much promises exceed it.
CREATE FUNCTION tenants_note_overrun() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.overrun := greatest(0, NEW.reserved - NEW.spendable - NEW.credit_limit);
    RETURN NEW;
END
$$;
CREATE TRIGGER tenants_budget_limit BEFORE UPDATE OF credit_limit ON tenants_budget
    FOR EACH ROW WHEN (OLD.credit_limit IS DISTINCT FROM NEW.credit_limit)
    EXECUTE FUNCTION tenants_note_overrun();

-- Constraints of logs. The hashes of leaves and nodes are those of RFC 6962 over their contents,
-- and entries are numbered without gaps, so a bug of the portal cannot write a wrong hash. The owner
-- of the tables can, but the signed heads that clients have stored reveal it.
ALTER TABLE tenants_logentry ADD CONSTRAINT log_entry_hash_of_its_record
    CHECK (leaf_hash = sha256('\x00'::bytea || record));
ALTER TABLE tenants_logkey ADD CONSTRAINT log_key_of_32_bytes CHECK (length(public) = 32);
-- Hashes cannot be compressed.
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
    IF length(below) IS DISTINCT FROM 64 OR NEW.hash <> sha256('\x01'::bytea || below) THEN
        RAISE EXCEPTION 'the hash at level %, % of log % is not that of its two children',
            NEW.level, NEW.index, NEW.log_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'log_node_of_its_children';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER tenants_lognode_guard BEFORE INSERT ON tenants_lognode
    FOR EACH ROW EXECUTE FUNCTION tenants_guard_log_node();
