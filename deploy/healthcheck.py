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

from portal.embedded.pulse import PATIENCE_S, STARTING_S

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


def silence_s(role: str, now: float) -> float:
    """Seconds since beat or a queue's worker gave a sign of life; endless if none ever did."""
    try:
        stamp = (Path(os.environ["EVENSHARE_RUN_DIR"]) / f"pulse-{role}").stat().st_mtime
    except OSError:
        return float("inf")
    return now - stamp


def alive(role: str, now: float) -> bool:
    """Whether beat sends messages, or a queue is consumed."""
    return silence_s(role, now) <= PATIENCE_S[role]


def main(role: str, *options: str) -> int:
    """The exit status: 0 is well."""
    if role in ("web", "ready"):
        return 0 if answers("/healthz" if role == "web" else "/readyz") else 1
    now = time.time()
    if alive(role, now):
        return 0
    first = Path("/proc/1")
    # Until it has started, the sign is the former process's.
    if "--or-end" in options and now - first.stat().st_mtime > STARTING_S:
        os.kill(1, signal.SIGTERM)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
