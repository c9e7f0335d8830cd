"""Rows and files of a tenant's jobs that no round makes, for the stage of two tenants."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from scheduling.engine.clock import wall_now
from scheduling.models import (
    IdleDay,
    IdleReading,
    Job,
    JobAnswer,
    JobPlan,
    Lease,
    StartEstimate,
    StartForecast,
)
from tenants.models import QuotaChangeRequest, User
from tests.factories import BEGIN, Cluster


def write_files(word: str, jobs: Iterable[Job], logs: Path) -> None:
    """Write each job's log, metrics and results."""
    for job in jobs:
        folder = logs / str(job.pk) / "leases" / "1"
        folder.mkdir(parents=True)
        (folder / "out.log").write_text(f"{word}-output\n")
        curves = {"version": 1, "series": {f"{word}-output": [[1, 0.5]]}}
        (folder.parents[1] / "metrics.json").write_text(json.dumps(curves))
        results = folder.parents[1] / "results"
        results.mkdir()
        (results / "output.txt").write_text(f"{word}-output")
        (results / f"{word}-output").write_text("")
        for file in results.iterdir():
            os.utime(file, (BEGIN.timestamp(), BEGIN.timestamp()))


def request_quota(lab: Cluster, manager: User, operator: User, word: str) -> str:
    """Create a declined request for quota and an open one; return the id of the open one.

    The ids come from the word, so that they do not shift the stage's seeded ids.
    """
    uids = (uuid5(NAMESPACE_URL, f"{word}-{state}") for state in ("declined", "open"))
    of: dict[str, Any] = {
        "tenant": lab.tenants[f"{word}-lab"], "pool": lab.pool, "gpu_type": lab.gpu_type,
        "gpus": 5, "quota_gpus": 2, "asked_by": manager,
    }  # fmt: skip
    QuotaChangeRequest.objects.create(
        **of, uid=next(uids), reason=f"{word}-reason", answer=f"{word}-answer", state="declined",
        decided_by=operator, decided_at=wall_now(),
    )  # fmt: skip
    return str(QuotaChangeRequest.objects.create(**of, uid=next(uids), reason=f"{word}-quota").uid)


def count_idle(lease: Lease) -> None:
    counted = {"known_us": 2 * 3600 * 10**6, "idle_us": 3600 * 10**6}
    IdleReading.objects.create(lease=lease, read_at=BEGIN, **counted)
    IdleDay.objects.create(tenant=lease.tenant, pool=lease.pool, day=BEGIN.date(), **counted)


def expect_start(job: Job) -> None:
    """Create a forecast of the pool with jobs of both tenants, and this job's estimate."""
    now = wall_now()
    facts = {
        "runs": 19, "queued": 2, "running": 2, "with_estimate": 0, "ended": 12, "arrivals": 0,
        "past_s": 3600, "hours": 24, "none": {},
        "corrections": {
            group: {"p50": 1.0, "p90": 1.0, "past": 0} for group in ("short", "long")
        },
    }  # fmt: skip
    forecast, _ = StartForecast.objects.get_or_create(
        pool=job.pool, state="done", claim="stage", round=1, at=BEGIN, until=BEGIN,
        defaults={"started_at": now, "beat_at": now, "ended_at": now, "facts": facts},
    )  # fmt: skip
    StartEstimate.objects.create(
        forecast=forecast, pool=job.pool, tenant_id=job.tenant_id, job=job, at=BEGIN, p50=BEGIN,
        kept=True,
    )  # fmt: skip
    JobPlan.objects.create(
        job=job, tenant_id=job.tenant_id, round=1, at=BEGIN, kind="refused", gpu_type="v100",
        gpus=1, borrowed=0, price=0, cost=0, value=0, needed=0, lowest=0,
    )  # fmt: skip
    JobAnswer.objects.create(
        job=job, tenant_id=job.tenant_id, round=1, at=BEGIN, state="missed", reward_micro=0,
        gpus=0, one_node=True, leases=[], blocked=[],
    )  # fmt: skip
