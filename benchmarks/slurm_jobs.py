"""Benchmark of Evenshare's overhead on Slurm: job start, dispatch, and a poll of 1,000 jobs.

Run `python -m benchmarks.slurm_jobs`. It uses a real cluster of five nodes with fake GPUs on this
machine. In the same run, plain sbatch submits the same work. The 1,000 jobs wait in Slurm's queue.
Their folders contain the files of running shims, because this machine cannot run 1,000 shims.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.temporary_database import temporary_database

STARTS, LISTED, LEASE_S = 15, 1000, 900
DISPATCH_TURNS, DISPATCHED = 5, 100
SUBMITTERS = 4
GOALS = "goals: 1.5 s more, 90 % of the throughput, 0.5 s, 1 %"


def main() -> None:
    from portal.demo.slurm.packages import how_to_install, missing_packages

    if missing := missing_packages():
        raise SystemExit(f"Slurm is not installed: {how_to_install(missing)}")
    with tempfile.TemporaryDirectory() as folder, temporary_database():
        from tests.integration.slurm_world import slurm_world

        with (
            slurm(Path(folder) / "slurm") as (cluster, restd),
            slurm_world(Path(folder) / "jobs", cluster) as world,
        ):
            starts(world)
            moves(world)
            cluster.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
            dispatches(world, restd)
            looks(world)
    print(GOALS)


@contextmanager
def slurm(folder: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Start a cluster; yield it with options of its slurmrestd, or with none if it cannot start."""
    from portal.demo.slurm.cluster import SlurmCluster
    from portal.demo.slurm.packages import find
    from tests.slurm_restd import own_restd

    if find("slurmrestd") is None or os.geteuid() != 0:
        with SlurmCluster(folder) as cluster:
            yield cluster, {}
        return
    with own_restd(folder) as restd:
        yield restd.cluster, {"restd": {**restd.options["restd"], "only_submits": True}}


def starts(world: Any) -> None:
    """Measure the time from a request to its process's first output, by sbatch and the executor."""
    plain, ours = [], []
    for turn in range(STARTS):
        mark = world.root.parent / f"mark-{turn}"
        plain.append(until(lambda mark=mark: sbatch(world, f"touch {mark}", "--gres=gpu:1"), mark))
        mark = world.root.parent / f"own-{turn}"
        token = world.lease("/usr/bin/touch", str(mark))
        ours.append(until(lambda token=token: launch(world, token), mark))
    a, b = statistics.median(plain), statistics.median(ours)
    print(f"until a process runs       sbatch {a:.2f} s, lease {b:.2f} s: {b - a:+.2f} s")


def moves(world: Any) -> None:
    """Measure how long a program does no work between its yield and its next lease."""
    took = []
    for _ in range(5):
        token = world.shell("trap 'exit 99' USR1; echo ready; while :; do sleep 0.01; done")
        world.says(token, "ready")
        began = time.perf_counter()
        world.stop(token)
        world.ended(token)
        mark = world.root.parent / f"moved-{token}"
        launch(world, world.lease("/usr/bin/touch", str(mark)))
        wait_for(mark)
        took.append(time.perf_counter() - began)
    lost = statistics.median(took)
    print(f"from one lease to the next {lost:.2f} s: {lost / LEASE_S:.2%} of leases of {LEASE_S} s")


def dispatches(world: Any, restd: dict[str, Any]) -> None:
    """Measure how many jobs are dispatched per second; none of these jobs starts."""
    plain, ours, by_restd = [], [], []
    for _ in range(DISPATCH_TURNS):
        began = time.perf_counter()
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(lambda _: sbatch(world, "true", "--gres=gpu:1"), range(DISPATCHED)))
        plain.append(DISPATCHED / (time.perf_counter() - began))
        ours.append(dispatched(world))
        if restd:
            by_restd.append(dispatched(world, restd))
    a, b = statistics.median(plain), statistics.median(ours)
    print(f"dispatched                 sbatch {a:.0f}/s, leases {b:.0f}/s: {b / a:.0%}")
    if by_restd:
        c = statistics.median(by_restd)
        print(f"  by slurmrestd            leases {c:.0f}/s: {c / a:.0%} of sbatch")


def dispatched(world: Any, options: dict[str, Any] | None = None) -> float:
    """Return the leases dispatched per second; `options` extend the pool's executor options."""
    from scheduling.models import Pool

    pool, own = Pool.objects.filter(pk=world.lab.pool.pk), world.lab.pool.executor_options
    tokens = [world.lease("true") for _ in range(DISPATCHED)]
    pool.update(executor_options={**own, **(options or {})})
    began = time.perf_counter()
    launch(world, *tokens)
    took_s = time.perf_counter() - began
    pool.update(executor_options=own)
    return DISPATCHED / took_s


def looks(world: Any) -> None:
    """Measure the time of a whole poll of running jobs."""
    from evenshare_core.domain.instants import from_us
    from scheduling.engine.executors.shim.files import write_json
    from scheduling.engine.fence import take_fence
    from scheduling.engine.reconcile import reconcile
    from scheduling.models import Lease

    tokens = [world.lease("true") for _ in range(LISTED)]
    launch(world, *tokens)
    Lease.objects.exclude(state="ended").update(state="running")
    claim = {"pid": 1, "started_us": time.time_ns() // 1000}
    known = [path.name for path in (world.root / "active").iterdir()]
    for token in known:
        write_json(world.folder(token) / "shim.json", claim)
    fence = take_fence(world.lab.pool.pk, holder="benchmark", hold_s=600)
    if fence is None:
        raise SystemExit("the pool is held by another process")

    def look() -> int:
        return reconcile(
            world.lab.pool, world.executor, fence, installation="es", at=from_us(world.now_us())
        )

    plain = statistics.median(clocked(world.tools.queue) for _ in range(7))
    took = statistics.median(clocked(look) for _ in range(7))
    print(
        f"one poll of {len(known):,} jobs       squeue {plain:.2f} s, reconcile {took:.2f} s:"
        f" {took / plain:.1f}x"
    )


def sbatch(world: Any, script: str, *options: str) -> str:
    said: str = world.slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script
    )
    return said


def launch(world: Any, *tokens: str) -> None:
    """Launch all leases in one call, as the dispatcher does."""
    from scheduling.engine.executors.base import Launch, token_job

    now_us = world.now_us()
    world.executor.launch([Launch(token, token_job(token), now_us) for token in tokens])


def until(begin: Callable[[], object], mark: Path) -> float:
    began = time.perf_counter()
    begin()
    wait_for(mark)
    return time.perf_counter() - began


def wait_for(mark: Path) -> None:
    deadline = time.monotonic() + 120
    while not mark.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"nobody wrote {mark.name}")
        time.sleep(0.005)


def clocked(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
