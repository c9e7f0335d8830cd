"""Benchmark of a whole round through Postgres: snapshot, decide, apply and dispatch."""

import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from benchmarks.temporary_database import temporary_database

NODES, GPUS, TENANTS, PENDING, RENEWALS = 1000, 8, 100, 10_000, 1000


def main() -> None:
    with temporary_database():
        crowded()
        calm()


def crowded() -> None:
    """Time rounds in which 10,000 jobs wait behind 1,000 leases."""
    lab = filled(PENDING + RENEWALS)
    print(f"{NODES:,} nodes x {GPUS}, {TENANTS} tenants, {PENDING:,} jobs waiting; milliseconds")
    print(f"{'round':<34}{'snapshot':>9}{'decide':>9}{'apply':>9}{'dispatch':>9}{'whole':>9}")
    _show("first: 1,000 granted", _timed_round(lab, 0))
    _show("nothing due, 10,000 wait", _timed_round(lab, 300))
    _show("1,000 expire, all change hands", _timed_round(lab, 600))
    print()


def calm() -> None:
    """Time renewals of 1,000 leases without waiting jobs, in bulk and one at a time."""
    lab = filled(RENEWALS)
    _timed_round(lab, 0)
    print(f"{RENEWALS:,} leases, no job waits; milliseconds")
    print(f"{'round':<34}{'snapshot':>9}{'decide':>9}{'apply':>9}{'dispatch':>9}{'whole':>9}")
    applied = []
    for _ in range(3):
        times = _timed_round(lab, 900)
        applied.append(times["apply"])
        _show("1,000 renewed", times)
    plain = _plain_renewals(lab)
    bulk = statistics.median(applied)
    print(
        f"row by row with the ORM: {plain:.0f} ms; apply {bulk:.0f} ms; {plain / bulk:.1f}x faster"
    )


def filled(jobs: int) -> Any:
    from evenshare_core.units import SECOND_US
    from scheduling.models import Job, VirtualWork
    from tests.factories import BEGIN, cluster

    quota = NODES * GPUS // TENANTS
    lab = cluster({f"t{i:03d}-{jobs}": quota for i in range(TENANTS)}, nodes=NODES, gpus=GPUS)
    tenants = list(lab.tenants.values())
    rows = Job.objects.bulk_create(
        [
            Job(
                pool=lab.pool,
                tenant=tenants[i % TENANTS],
                name=f"job-{i}",
                submitted_at=BEGIN,
                gpus=GPUS,
            )
            for i in range(jobs)
        ]
    )
    VirtualWork.objects.bulk_create(
        [VirtualWork(job=job, duration_us=10**6 * SECOND_US) for job in rows]
    )
    return lab


def _timed_round(lab: Any, after_s: int) -> dict[str, float]:
    """Run the steps of a round under the fence; return the time of each step in milliseconds."""
    from scheduling.engine import rounds

    times: dict[str, float] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = function(*args, **kwargs)
            times[name] = times.get(name, 0) + (time.perf_counter() - began) * 1000
            return result

        return call

    steps = {
        "snapshot": "read_with_state",
        "decide": "decide_round",
        "apply": "apply_round",
        "dispatch": "_dispatch",
    }
    originals = {attribute: getattr(rounds, attribute) for attribute in steps.values()}
    for name, attribute in steps.items():
        setattr(rounds, attribute, timed(name, originals[attribute]))
    lab.at += timedelta(seconds=after_s)
    try:
        began = time.perf_counter()
        result = rounds.execute_round(lab.pool.pk, now=lab.now())
        times["whole"] = (time.perf_counter() - began) * 1000
    finally:
        for attribute, original in originals.items():
            setattr(rounds, attribute, original)
    if result.round is None:
        raise SystemExit(f"no round was committed: {result.outcome.value}")
    return times


def _show(label: str, times: dict[str, float]) -> None:
    steps = ("snapshot", "decide", "apply", "dispatch", "whole")
    print(f"{label:<34}" + "".join(f"{times[step]:>9.0f}" for step in steps), flush=True)


def _plain_renewals(lab: Any) -> float:
    """Renew the same leases one by one, then roll back."""
    from django.db import transaction

    from scheduling.models import Lease, LeaseEvent, LeaseTerm

    began = time.perf_counter()
    with transaction.atomic():
        number = LeaseEvent.objects.filter(pool=lab.pool).count()
        for lease in Lease.objects.filter(pool=lab.pool, state="running").select_related("job"):
            lease.term += 1
            lease.expires_at += timedelta(seconds=900)
            lease.save()
            lease.job.terms += 1
            lease.job.save()
            LeaseTerm.objects.create(
                lease=lease,
                number=lease.term,
                round=0,
                starts_at=lab.at,
                expires_at=lease.expires_at,
                own=lease.own,
                borrowed=lease.borrowed,
                price=lease.price,
            )
            number += 1
            LeaseEvent.objects.create(
                pool=lab.pool,
                number=number,
                kind="renewed",
                at=lab.at,
                lease=lease,
                job=lease.job,
                tenant_id=lease.tenant_id,
                term=lease.term,
            )
        took = (time.perf_counter() - began) * 1000
        transaction.set_rollback(True)
    return took


if __name__ == "__main__":
    main()
