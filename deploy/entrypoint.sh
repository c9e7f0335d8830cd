#!/bin/sh
# One process of the portal, in a container or a unit of systemd: entrypoint.sh ROLE.
#
#   prepare        migrations, as the owner; run to its end before the others start
#   web            the web server on BIND (127.0.0.1) and PORT (8000), WEB_PROCESSES of them
#   worker QUEUE   rounds (ROUND_PROCESSES of them) or default
#   beat           the one tick; exactly one of it
#   backup, restore, manage ...   see deploy/ and `manage.py help`
#
# Each refuses unsafe settings in a line per problem, before it starts anything.
set -eu
cd "$(dirname "$0")/.."
[ ! -x .venv/bin/python ] || PATH="$PWD/.venv/bin:$PATH"
export PATH EVENSHARE_MODE="${EVENSHARE_MODE:-production}" PYTHONUNBUFFERED=1

role=${1:?a role: prepare, web, worker, beat, backup, restore, manage}
shift
case $role in
  prepare)
    exec python -m portal.site.prepare
    ;;
  web)
    # Here, once: a process of the server that refused would be started again for ever.
    python -m portal.site.prepare --check
    # What the former processes have counted (portal/site/shared_counts.py).
    [ -z "${EVENSHARE_RUN_DIR:-}" ] || rm -rf "$EVENSHARE_RUN_DIR/web"
    # WEB_PROCESSES, or what the machine is for; and the connections of each.
    size=$(python -m portal.embedded.web_size)
    export DATABASE_POOL_SIZE="${DATABASE_POOL_SIZE:-${size#* }}"
    # A process that is only slow to start, on a busy machine, must not be killed for it for ever.
    exec python -m uvicorn portal.site.asgi:application \
      --host "${BIND:-127.0.0.1}" --port "${PORT:-8000}" \
      --workers "${size% *}" --lifespan off --proxy-headers --no-access-log \
      --no-server-header --timeout-graceful-shutdown 8 --timeout-worker-healthcheck 60 \
      --log-config deploy/uvicorn-log.json
    ;;
  worker)
    queue=${1:?a queue: rounds or default}
    python -m portal.site.prepare --check
    processes=1
    [ "$queue" != rounds ] || processes=$(python -m portal.embedded.round_processes)
    exec python -m celery -A portal.site.celery worker --concurrency="$processes" \
      --without-gossip --without-mingle --queues "$queue" --hostname "$queue@%h"
    ;;
  beat)
    python -m portal.site.prepare --check
    exec python -m celery -A portal.site.celery beat --pidfile= \
      --schedule "${EVENSHARE_RUN_DIR:-/tmp}/beat-schedule"
    ;;
  backup | restore)
    exec "deploy/$role.sh" "$@"
    ;;
  manage)
    exec python manage.py "$@"
    ;;
  *)
    echo "entrypoint.sh: unknown role $role" >&2
    exit 2
    ;;
esac
