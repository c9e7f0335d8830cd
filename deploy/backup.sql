-- Run by backup.sh: writes the dump and the manifest's row counts from one snapshot.
\set ON_ERROR_STOP on
\getenv version CODE_VERSION
\getenv commit CODE_COMMIT
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT pg_export_snapshot() AS snapshot \gset
\setenv SNAPSHOT :snapshot
\! pg_dump --format=custom --lock-wait-timeout=60000 --snapshot="$SNAPSHOT" --file="$PARTIAL/database.dump"
\if :SHELL_ERROR
  \warn the dump failed
  SELECT 1 / 0 AS dump_failed;
\endif
SELECT string_agg(format('SELECT %L AS name, count(*) AS rows FROM public.%I', relname, relname),
                  ' UNION ALL ') AS counts
  FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace \gset
\getenv partial PARTIAL
\set manifest :partial '/manifest.json'
\pset tuples_only on
\pset format unaligned
\o :manifest
SELECT json_build_object(
  'made_at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
  'version', :'version',
  'commit', :'commit',
  'server', current_setting('server_version'),
  'database_bytes', pg_database_size(current_database()),
  'migrations', (SELECT json_agg(app || '.' || name ORDER BY id) FROM django_migrations),
  'rows', (SELECT json_object_agg(name, rows ORDER BY name) FROM (:counts) AS counted));
\o
COMMIT;
