"""Benchmark of submissions over HTTP while a pool's Slurm answers, and while it is down.

Run `python -m benchmarks.submit_engine_down`. A real Slurm cluster, a process that runs the pool's
rounds each second, and the clients of `submit_http` share the machine. The cluster's controller is
killed and started alternately. A submission makes no call to Slurm. The benchmark measures the same
server with successful rounds, and with rounds that wait for failing calls.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from typing import TYPE_CHECKING

from benchmarks import submit_http
from benchmarks.temporary_database import temporary_database, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.slurm_rounds import SlurmRounds

TURNS, SUBMISSIONS = 3, 1000
LONG = ("/bin/sleep", "3600")
GOAL = 20


def main() -> None:
    from portal.demo.slurm.cluster import SlurmCluster
    from portal.demo.slurm.packages import how_to_install, missing_packages

    if missing := missing_packages():
        raise SystemExit(f"Slurm is not installed: {how_to_install(missing)}")
    with tempfile.TemporaryDirectory() as folder, temporary_database():
        from tests.integration.slurm_rounds import slurm_rounds

        root = Path(folder) / "jobs"
        with (
            SlurmCluster(Path(folder) / "slurm") as cluster,
            slurm_rounds(root, cluster, lease_s=900) as world,
            rounds(root, world.lab.pool.pk),
            create_server(("127.0.0.1", 0), backlog=128) as listener,
        ):
            web = submit_http.start_web(listener)
            try:
                secret = token_of(world.lab.tenants["a"])
                port = listener.getsockname()[1]
                pool = world.lab.pool.name
                server = submit_http.PortalProcess(port, secret, pool, web.pid, LONG)
                submit_http.wait_for(server)
                compare(server, world)
            finally:
                web.terminate()
                web.wait(20)


def compare(server: submit_http.PortalProcess, world: SlurmRounds) -> None:
    """Print the p99 with Slurm up and with Slurm down, measured alternately."""
    # These submissions fill the pool, so that later jobs wait.
    submit_http.submit_all(server, 200, "warm")
    answering, down = [], []
    for turn in range(TURNS):
        answering += submit_http.submit_all(server, SUBMISSIONS, f"up{turn}")[1]
        world.slurm.kill_controller()
        await_failures(world.lab.pool.pk)
        down += submit_http.submit_all(server, SUBMISSIONS, f"down{turn}")[1]
        world.slurm.start_controller()
    a, b = (sorted(spans)[int(len(spans) * 0.99)] * 1000 for spans in (answering, down))
    print(
        f"{TURNS * SUBMISSIONS:,} submissions each, {submit_http.CLIENTS} clients:"
        f" p99 {a:.0f} ms while the engine answers, {b:.0f} ms while it is down:"
        f" {(b - a) / a:+.0%} (goal at most +{GOAL} %)"
    )


def await_failures(pool_id: int) -> None:
    """Wait until the rounds notice that Slurm is down."""
    from scheduling.models import ExecutorHealth

    end = time.monotonic() + 60
    while not ExecutorHealth.objects.filter(pool=pool_id, failures__gt=0).exists():
        if time.monotonic() > end:
            raise SystemExit("no round asked the engine")
        time.sleep(0.1)


@contextmanager
def rounds(root: Path, pool_id: int) -> Iterator[None]:
    """Run the pool's rounds in a separate process inside the block."""
    command = [sys.executable, "-m", "benchmarks.rounds_process", str(root), str(pool_id)]
    process = subprocess.Popen(command, env={**os.environ, "LOG_LEVEL": "CRITICAL"})
    try:
        yield
    finally:
        ended = process.poll()
        process.terminate()
        process.wait(20)
        if ended is not None:
            raise SystemExit(f"the rounds ended by themselves ({ended})")


if __name__ == "__main__":
    main()
