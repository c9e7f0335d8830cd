-- Finds a tenant's ended jobs by any combination of filters (docs/adr/0240-lists-of-many-jobs.md).
--
-- Row security lets an index serve only leakproof operators, and those of arrays and text are not.
-- So the function below reads the index as the owner. It takes the tenants from the scope.

-- The keys of an ended job: `tenant:block:kind:value`. A block has 16,384 consecutive ids, so the
-- newest jobs of a key are found without reading all jobs of the key. Kinds: p pool, u submitter,
-- s state, x exit code, t tag, g one or two letters of the name; d, m and y the day of the submission, and
-- its spans of 32 and of 1,024 days. The key `all` has no value.
CREATE FUNCTION evenshare_job_keys(
    id bigint, tenant bigint, pool bigint, person bigint, state text, exit_code integer,
    submitted timestamptz, tags text[], name text
) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_agg(tenant || ':' || (id >> 14) || ':' || key) FROM (
        SELECT unnest(ARRAY[
            'all', 'p:' || pool, 'u:' || person, 's:' || state, 'x:' || exit_code,
            'd:' || day, 'm:' || (day >> 5), 'y:' || (day >> 10)
        ]) FROM (
            SELECT floor(extract(epoch FROM submitted - to_timestamp(0)) / 86400)::integer
        ) AS submission (day)
        UNION ALL SELECT 't:' || unnest(tags)
        UNION ALL SELECT 'g:' || unnest(string_to_array(lower(name), NULL))
        UNION ALL SELECT 'g:' || substr(lower(name), at, 2)
        FROM generate_series(1, length(name) - 1) AS at
    ) AS keys (key) WHERE key IS NOT NULL
$$;

CREATE INDEX job_by_keys ON scheduling_job USING gin (
    evenshare_job_keys(
        id, tenant_id, pool_id, submitted_by_id, state, exit_code, submitted_at, tags, name)
) WITH (fastupdate = off) WHERE state IN ('succeeded', 'failed', 'cancelled');

-- The tenants of the scope, as far as they are among `wanted`; null means all.
CREATE FUNCTION evenshare_tenants_among(wanted bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT coalesce(array_agg(t.id ORDER BY t.id), '{}') FROM tenants_tenant t
    WHERE (wanted IS NULL OR t.id = ANY (wanted))
      AND (evenshare_sees_all() OR t.id = ANY (evenshare_tenants()))
$$;

-- The ids of at most `most` ended jobs that have all `keys` (`kind:value`) and one of `days`, in
-- the order of their ids. `part`: a part of the name. `since`, `until`: bounds of the submission
-- within `days`. `beyond`: the last id of the previous page. A null does not filter.
-- Each block is one look-up by the index: adding 0 keeps the planner from reading it by another one.
CREATE FUNCTION evenshare_find_jobs(
    wanted bigint[], keys text[], days text[], part text, since timestamptz, until timestamptz,
    beyond bigint, most integer, is_ascending boolean
) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = public, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
    tenants bigint[] := evenshare_tenants_among(wanted);
    step integer := CASE WHEN is_ascending THEN 1 ELSE -1 END;
    first_id bigint;
    last_id bigint;
    block bigint;
    owner bigint;
    prefix text;
    page bigint[];
BEGIN
    part := lower(part);
    days := coalesce(days, '{all}');
    keys := coalesce(keys, '{}') || ARRAY(
        SELECT 'g:' || substr(part, at, 2) FROM generate_series(1, greatest(length(part) - 1, 1)) at
        WHERE part <> '');
    SELECT min(a.id), max(z.id) INTO first_id, last_id FROM unnest(tenants) t,
        LATERAL (SELECT id FROM scheduling_job WHERE tenant_id = t ORDER BY id LIMIT 1) a,
        LATERAL (SELECT id FROM scheduling_job WHERE tenant_id = t ORDER BY id DESC LIMIT 1) z;
    IF is_ascending THEN
        first_id := greatest(first_id, beyond + 1);
    ELSE
        last_id := least(last_id, beyond - 1);
    END IF;
    block := CASE WHEN is_ascending THEN first_id ELSE last_id END >> 14;
    WHILE most > 0 AND block BETWEEN first_id >> 14 AND last_id >> 14 LOOP
        page := '{}';
        FOREACH owner IN ARRAY tenants LOOP
            prefix := owner || ':' || block || ':';
            page := page || ARRAY(
                SELECT j.id FROM scheduling_job j
                WHERE evenshare_job_keys(j.id, j.tenant_id, j.pool_id, j.submitted_by_id, j.state,
                          j.exit_code, j.submitted_at, j.tags, j.name)
                      @> ARRAY(SELECT prefix || key FROM unnest(keys) key)
                  AND evenshare_job_keys(j.id, j.tenant_id, j.pool_id, j.submitted_by_id, j.state,
                          j.exit_code, j.submitted_at, j.tags, j.name)
                      && ARRAY(SELECT prefix || day FROM unnest(days) day)
                  AND j.state IN ('succeeded', 'failed', 'cancelled')
                  AND j.tenant_id + 0 = owner AND j.id + 0 BETWEEN first_id AND last_id
                  AND (part IS NULL OR position(part IN lower(j.name)) > 0)
                  AND (since IS NULL OR j.submitted_at >= since)
                  AND (until IS NULL OR j.submitted_at < until)
                ORDER BY j.id * step LIMIT most);
        END LOOP;
        RETURN QUERY SELECT id FROM unnest(page) id ORDER BY id * step LIMIT most;
        most := most - least(most, cardinality(page));
        block := block + step;
    END LOOP;
END
$$;
