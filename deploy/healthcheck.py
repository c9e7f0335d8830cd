"""Is the process of this container well? `python -m deploy.healthcheck web|ready|QUEUE|beat`.

`web` asks /healthz, `ready` asks /readyz. The others look at the sign of life that beat and the
worker of each queue leave in EVENSHARE_RUN_DIR (portal/embedded/pulse.py). Workers have stopped
consuming after a reconnect while their process looked healthy, and nobody restarts what is
merely unhealthy; so with `--or-end` process 1 is asked to end when the sign stays away for too
long, and the restart policy does the rest. Standard library only: it runs every few seconds.
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
    """Whether the web process of this container answers with success."""
    # Django answers only to hosts that it serves.
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
    """Return why beat or a queue's worker is not well, or an empty text; `now` is monotonic."""
    run = Path(os.environ["EVENSHARE_RUN_DIR"])
    patience_s = PATIENCE_S[role]
    pulse_at = touched_at(run, f"pulse-{role}")
    sign_at = pulse_at if role == BEAT else touched_at(run, f"heartbeat-{role}")
    # What a former boot left is later than now.
    if sign_at is None or sign_at > now:
        return "it gave no sign of life"
    if now - sign_at > patience_s:
        return f"no heartbeat for {now - sign_at:.0f} s"
    if role == BEAT:
        return ""
    progress_at = pulse_at or 0.0
    return complaint(read_heartbeat(run, role), now, progress_at=progress_at, patience_s=patience_s)


def main(role: str, *options: str) -> int:
    """The exit status: 0 is well."""
    if role in ("web", "ready"):
        return 0 if answers("/healthz" if role == "web" else "/readyz") else 1
    why = problem(role, time.monotonic())
    if not why:
        return 0
    print(why)
    # Until it has started, the sign is the former process's.
    if "--or-end" in options and time.time() - Path("/proc/1").stat().st_mtime > STARTING_S:
        name = role if role == BEAT else f"worker-{role}"
        note_restart(Path(os.environ["EVENSHARE_RUN_DIR"]), name, why, at=time.time())
        os.kill(1, signal.SIGTERM)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
