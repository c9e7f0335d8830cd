"""The health check of a container: `python -m deploy.healthcheck web|ready|QUEUE|beat`.

`web` requests /healthz, `ready` requests /readyz. The other roles check the heartbeat file that
beat and the worker of each queue write to EVENSHARE_RUN_DIR (portal/embedded/pulse.py). Workers
sometimes stopped consuming tasks after a reconnect, although their process looked healthy. Docker
does not restart an unhealthy container. With `--or-end` the check therefore ends process 1 after a
long silence, and the restart policy starts the container again. The check runs every few seconds,
so it uses only the standard library.
"""

import http.client
import os
import signal
import sys
import time
from pathlib import Path

from portal.embedded.heartbeat import complaint, read_heartbeat, touched_at
from portal.embedded.pulse import BEAT, PATIENCE_S, STARTING_S
from portal.embedded.restarts import note_restart

ANSWER_S = 5.0


def answers(path: str) -> bool:
    """Return whether the web process of this container answers the request successfully."""
    # Django answers only requests for its allowed hosts.
    host = os.environ.get("ALLOWED_HOSTS", "").split(",")[0].strip().lstrip(".")
    connection = http.client.HTTPConnection(
        "127.0.0.1", int(os.environ.get("PORT") or 8000), timeout=ANSWER_S
    )
    try:
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def problem(role: str, now: float) -> str:
    """Return the problem of beat or of a queue's worker, or "" if it is healthy.

    `now`: a monotonic time.
    """
    run = Path(os.environ["EVENSHARE_RUN_DIR"])
    patience_s = PATIENCE_S[role]
    pulse_at = touched_at(run, f"pulse-{role}")
    sign_at = pulse_at if role == BEAT else touched_at(run, f"heartbeat-{role}")
    # A heartbeat file from an earlier boot has a time in the future.
    if sign_at is None or sign_at > now:
        return "it sent no heartbeat"
    if now - sign_at > patience_s:
        return f"no heartbeat for {now - sign_at:.0f} s"
    if role == BEAT:
        return ""
    progress_at = pulse_at or 0.0
    return complaint(read_heartbeat(run, role), now, progress_at=progress_at, patience_s=patience_s)


def main(role: str, *options: str) -> int:
    """Return the exit status: 0 if healthy."""
    if role in ("web", "ready"):
        return 0 if answers("/healthz" if role == "web" else "/readyz") else 1
    why = problem(role, time.monotonic())
    if not why:
        return 0
    print(why)
    # Until the process has started, the file is from the previous process.
    if "--or-end" in options and time.time() - Path("/proc/1").stat().st_mtime > STARTING_S:
        name = role if role == BEAT else f"worker-{role}"
        note_restart(Path(os.environ["EVENSHARE_RUN_DIR"]), name, why, at=time.time())
        os.kill(1, signal.SIGTERM)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
