#!/usr/bin/env bash
# Dump the database into a folder of its own: backup.sh [FOLDER], default BACKUP_DIR or backups.
#
# Needs OWNER_DATABASE_URL. Rounds go on meanwhile: a dump only reads, one moment of all tables.
# With EVENSHARE_ROUNDS_DIR, files of rounds that are not there yet are copied to FOLDER/rounds: all
# backups share them, for they never change.
# BACKUP_KEEP (14) is how many are kept. Ends with 0 only when the backup is whole; then it has
# its name, evenshare-<UTC time>, and not before.
set -euo pipefail
umask 077
target=$(realpath -m "${1:-${BACKUP_DIR:-backups}}")
keep=${BACKUP_KEEP:-14}
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
[[ $keep =~ ^[1-9][0-9]*$ ]] || stop "BACKUP_KEEP must be a number from 1, not '$keep'"

address OWNER_DATABASE_URL
name=evenshare-$(date -u +%Y%m%dT%H%M%SZ)
mkdir -p "$target"
export PARTIAL="$target/.$name.partial"
mkdir "$PARTIAL"
trap 'rm -rf "$PARTIAL"' EXIT

SECONDS=0
CODE_VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
CODE_COMMIT=${CODE_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
export CODE_VERSION CODE_COMMIT
psql --no-psqlrc --quiet --file deploy/backup.sql >&2
# A dump whose end was cut off has no list.
pg_restore --list "$PARTIAL/database.dump" >/dev/null
(cd "$PARTIAL" && sha256sum database.dump manifest.json >SHA256SUMS)
sync "$PARTIAL"/* "$PARTIAL"
mv "$PARTIAL" "$target/$name"
say "$target/$name: $(stat -c %s "$target/$name/database.dump") bytes in $SECONDS s"

# After the dump: a file that it names is there by now. Beside, then renamed: no half file stays.
if [ -n "${EVENSHARE_ROUNDS_DIR:-}" ] && [ -d "$EVENSHARE_ROUNDS_DIR" ]; then
  copied=0
  while IFS= read -r -d '' file; do
    to="$target/rounds/$file"
    [ ! -e "$to" ] || continue
    mkdir -p "$(dirname "$to")"
    cp "$EVENSHARE_ROUNDS_DIR/$file" "$to.partial"
    sync "$to.partial"
    mv "$to.partial" "$to"
    copied=$((copied + 1))
  done < <(cd "$EVENSHARE_ROUNDS_DIR" && find . -type f -name '*.zip' -printf '%P\0')
  say "$target/rounds: $copied new files of rounds"
fi

# The names sort by time.
find "$target" -maxdepth 1 -type d -name 'evenshare-*Z' | sort | head -n "-$keep" |
  while read -r old; do
    rm -rf "$old"
    say "$old: dropped, $keep are kept"
  done
