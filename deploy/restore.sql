-- Run by restore.sh: lists tables whose row counts differ from the manifest; no line means none.
\set ON_ERROR_STOP on
\set manifest `cat "$BACKUP/manifest.json"`
SELECT string_agg(format('SELECT %L AS name, count(*) AS rows FROM public.%I', relname, relname),
                  ' UNION ALL ') AS counts
  FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace \gset
SELECT format('%s: %s rows, %s in the manifest', coalesce(name, key), rows, value)
  FROM (:counts) AS counted
  FULL JOIN json_each_text(:'manifest'::json -> 'rows') AS expected ON key = name
 WHERE rows IS DISTINCT FROM value::bigint
 ORDER BY 1;
