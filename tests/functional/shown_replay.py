"""A finished replay that shows tenants their results, with given charges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal

from evenshare_core.money.fixed_point import to_micro
from evenshare_core.simulation.policy_runs import RunFigures
from scheduling.engine.clock import wall_now
from scheduling.models import Simulation
from tenants.models import User
from tests.factories import Cluster


def write_shown_replay(lab: Cluster, operator: User, charges: Mapping[str, Decimal]) -> Simulation:
    """Write a replay under two policies; `charges` are by the tenant's slug, also its remarks."""
    figures = {
        slug: asdict(
            RunFigures(
                jobs=1, ended=1, never_ending=0, avg_queue_s=1.0, p95_queue_s=1.0, avg_jct_s=2.0,
                deadlines=1, deadlines_met=1, sharing_loss_jobs=0.0, tenant_unfair_intervals=0.0,
                tenant_deficit=0.0, preemptions=0, gpu_us=1, charged_micro=to_micro(charge),
                earned_micro=0,
            )
        )
        for slug, charge in charges.items()
    }  # fmt: skip # rows of what belongs together
    pool = {
        **next(iter(figures.values())),
        "charged_micro": to_micro(sum(charges.values(), Decimal())),
    }
    run = {"version": "1", "options": {}, "rounds": 1, "sha256": "0" * 64}
    return Simulation.objects.create(
        pool=lab.pool, asked_by=operator, kind="history", policy=lab.pool.policy, hours=24,
        options={"policies": ["fifo"], "seed": 0}, state="done", is_shown=True, at=lab.at,
        asked_at=wall_now(), ended_at=wall_now(), snapshot_sha256="0" * 64,
        result={
            "start": lab.at.isoformat(), "seed": 0, "jobs": len(charges),
            "policies": [{"policy": name, **run} for name in (lab.pool.policy, "fifo")],
            "pool": [pool, pool],
            "tenants": {
                str(lab.tenants[slug].pk): [row, row] for slug, row in figures.items()
            },
            "remarks": [f"Remark about {slug}." for slug in charges],
        },
    )  # fmt: skip # rows of what belongs together
