"""Test that the virtual executor reads only the requested work, however many jobs exist."""

from __future__ import annotations

from evenshare_core.domain.instants import to_us
from scheduling.engine.executors.base import Launch, Stop
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.models import Job, VirtualWork
from tests.factories import Cluster, cluster
from tests.functional.reading import reading_of
from tests.plugin import Services

PAST = 2_000


def test_no_call_reads_work_of_ended_jobs(committed_db: str, services: Services) -> None:
    lab = cluster({"aa": 4})
    job = lab.submit("aa", 1, 600)
    lab.round()
    token = VirtualWork.objects.get(job=job).token
    _past(lab)
    with services.postgres.connect(committed_db) as session:
        session.execute("ANALYZE")
    executor, at_us = VirtualExecutor(), to_us(lab.at)
    calls = (
        lambda: executor.launch([Launch(token, job.pk, at_us)]),
        lambda: executor.stop([Stop(token, job.pk, at_us, 0)]),
        lambda: executor.list(lab.pool.pk, at_us),
        lambda: executor.forget([token]),
    )
    rows = [reading_of(call).rows for call in calls]
    assert max(rows) < PAST / 10, rows


def _past(lab: Cluster) -> None:
    jobs = Job.objects.bulk_create(
        Job(
            pool=lab.pool, tenant=lab.tenants["aa"], name="over", submitted_at=lab.at, gpus=1,
            state=Job.State.CANCELLED, ended_at=lab.at,
        )
        for _ in range(PAST)
    )  # fmt: skip
    VirtualWork.objects.bulk_create(VirtualWork(job=job, duration_us=1) for job in jobs)
