# Read by backup.sh and restore.sh.
# The checkout, its Python, and PostgreSQL's programs: EVENSHARE_POSTGRES_BIN, those of the
# wheel, or those on PATH. They must be as new as the server at least.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ ! -x .venv/bin/python ] || PATH="$PWD/.venv/bin:$PATH"
PATH="$(python -c 'from portal.embedded.postgres import find_programs; print(find_programs())'):$PATH"
export PATH

say() { echo "$(basename "$0"): $*"; }
stop() { echo "$(basename "$0"): refused: $*" >&2; exit 1; }

# Point PostgreSQL's programs to the address in a variable.
address() {
  local lines
  lines=$(python -m deploy.address "$1") || exit 1
  eval "$lines"
}

ask() { psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 "$@"; }
