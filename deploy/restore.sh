#!/usr/bin/env bash
# Restore a backup into an empty server, and prove it: restore.sh BACKUP
#
# Needs DATABASE_URL and OWNER_DATABASE_URL, and the portal's other settings. With
# ADMIN_DATABASE_URL (a superuser) it makes the roles and the database first. RESTORE_JOBS (2):
# tables at once. REPLAY (20): how many rounds of each pool are decided again, or `all`.
#
# Stop web, workers and beat before. It never writes into a database that has tables; one that
# it could not finish must be dropped before it is tried again.
set -euo pipefail
backup=$(realpath "${1:?usage: restore.sh BACKUP}")
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export BACKUP="$backup"
replay=${REPLAY:-20}
[[ $replay =~ ^([1-9][0-9]*|all)$ ]] || stop "REPLAY must be a number from 1 or all"

step() { say "$* ($SECONDS s)"; }
SECONDS=0

# 1. Is the backup whole, and not newer than this code?
(cd "$backup" && sha256sum --check --strict --quiet SHA256SUMS) ||
  stop "$backup is not what was backed up"
unknown=$(python -m deploy.migrations "$backup/manifest.json") || exit 1
[ -z "$unknown" ] || stop "this code is older than the backup: it has no $unknown"

# 2. Roles and database.
if [ -n "${ADMIN_DATABASE_URL:-}" ]; then
  address OWNER_DATABASE_URL
  export OWNER_DB_ROLE=$PGUSER OWNER_DB_PASSWORD=${PGPASSWORD:-} DB_NAME=$PGDATABASE
  address DATABASE_URL
  export APP_DB_ROLE=$PGUSER APP_DB_PASSWORD=${PGPASSWORD:-}
  address ADMIN_DATABASE_URL
  ask --file deploy/roles.sql
  step "roles and database are there"
fi

# 3. Empty?
address OWNER_DATABASE_URL
tables=$(ask --command "SELECT count(*) FROM pg_class
  WHERE relkind IN ('r', 'p', 'v', 'm') AND relnamespace = 'public'::regnamespace")
[ "$tables" = 0 ] || stop "the database $PGDATABASE has $tables tables; restore into an empty one"

# 4. Restore, and count.
pg_restore --exit-on-error --jobs="${RESTORE_JOBS:-2}" --dbname="$PGDATABASE" "$backup/database.dump"
ask --command "SET client_min_messages TO error" --command "ANALYZE"
step "restored"
different=$(ask --file deploy/restore.sql)
[ -z "$different" ] || stop "rows are missing or too many: $different"
step "every table has the rows that the manifest says"

# Files of rounds, those that are not there: before rounds are decided again.
files=$(dirname "$backup")/rounds
if [ -n "${EVENSHARE_ROUNDS_DIR:-}" ] && [ -d "$files" ]; then
  mkdir -p "$EVENSHARE_ROUNDS_DIR"
  (cd "$files" && find . -type f -name '*.zip' -print0) | while IFS= read -r -d '' file; do
    to="$EVENSHARE_ROUNDS_DIR/$file"
    [ -e "$to" ] || { mkdir -p "$(dirname "$to")" && cp "$files/$file" "$to"; }
  done
  step "files of rounds are in $EVENSHARE_ROUNDS_DIR"
fi

# 5. Migrations of newer code, roles and settings: as before any start.
python -m portal.site.prepare
python manage.py migrate --check --database owner >/dev/null || stop "migrations are missing"
step "migrations are applied"

# 6. The books, and the rounds.
python manage.py check_ledger
step "the books add up"
while read -r pool; do
  if [ "$replay" = all ]; then
    numbers=--all
  else
    numbers=$(ask --set pool="$pool" --set count="$replay" <<<"SELECT b.number
      FROM scheduling_roundblob b JOIN scheduling_pool p ON p.id = b.pool_id
      WHERE p.name = :'pool' ORDER BY b.number DESC LIMIT :count")
  fi
  # shellcheck disable=SC2086 # a list of numbers
  [ -z "$numbers" ] || python manage.py replay_round --pool "$pool" $numbers | tail -n 1
done < <(ask --command "SELECT name FROM scheduling_pool ORDER BY name")
step "rounds decide as they did"

# 7. What the executors know and this database may not. Jobs that were made after the backup had
# numbers that are free here, and an engine may still run them: no other job may get those.
ask --command "SELECT setval(s, nextval(s) + 1000000)
  FROM pg_get_serial_sequence('scheduling_job', 'id') AS s" >/dev/null
ask --command "SELECT format('pool %s (%s): %s live leases as of the backup', p.name, p.executor,
    (SELECT count(*) FROM scheduling_lease l WHERE l.pool_id = p.id AND l.state <> 'ended'))
  FROM scheduling_pool p ORDER BY p.name"
say "before you start worker-rounds, read \"After a restore\" in docs/operations.md:"
say "what was started after the backup is unknown here, and the first round will stop it"
say "done in $SECONDS s"
