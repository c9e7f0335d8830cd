-- Creates the two roles and the database, as a superuser. It may be run again.
--
--   psql --no-psqlrc --dbname postgres --file deploy/roles.sql
--
-- Names and passwords come from the environment, so that no password is in an argument list. A role
-- whose variable is not set keeps its password.
\set ON_ERROR_STOP on
\set owner evenshare_owner
\set app evenshare_app
\set database evenshare
\set owner_password ''
\set app_password ''
\getenv owner OWNER_DB_ROLE
\getenv app APP_DB_ROLE
\getenv database DB_NAME
\getenv owner_password OWNER_DB_PASSWORD
\getenv app_password APP_DB_PASSWORD

-- Passwords must not be written to the server's log.
SET log_statement TO 'none';
SET log_min_duration_statement TO -1;
SET log_min_error_statement TO 'panic';

SELECT format('CREATE ROLE %I LOGIN', role)
  FROM unnest(ARRAY[:'owner', :'app']) AS wanted (role)
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) \gexec

SELECT format('ALTER ROLE %I PASSWORD %L', role, password)
  FROM (VALUES (:'owner', :'owner_password'), (:'app', :'app_password')) AS given (role, password)
 WHERE password <> '' \gexec

-- Names of jobs sort in the same way on every machine, whatever its locale files.
SELECT current_setting('server_version_num')::int >= 170000 AS has_builtin \gset
\if :has_builtin
  \set locale 'LOCALE_PROVIDER builtin BUILTIN_LOCALE ''C.UTF-8'' LOCALE ''C'''
\else
  \set locale 'LOCALE ''C'''
\endif
SELECT format('CREATE DATABASE %I OWNER %I ENCODING ''UTF8'' TEMPLATE template0 %s',
              :'database', :'owner', :'locale')
 WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec

ALTER DATABASE :"database" SET timezone TO 'UTC';
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO :"app";
