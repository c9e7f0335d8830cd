"""Simulations of a pool, for pages."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from scheduling.models import Job, Simulation

LISTED = 30
SHOWN = 10  # replays on a tenant's page


@dataclass(frozen=True, slots=True)
class OwnReplay:
    """A tenant's own figures in a replay of the last `days` before `until` (pool time).

    `figures` are those of `evenshare_core.simulation.policy_runs.RunFigures`, in the order of
    `policies`. `own_policy` was the pool's.
    """

    id: int
    pool: str
    until: datetime
    days: int
    policies: tuple[str, ...]
    own_policy: str
    figures: tuple[Mapping[str, Any], ...]

    @property
    def key(self) -> str:
        """The id of its figures on a page."""
        return f"replay-{self.id}"


def simulations_of(pool_id: int) -> list[Simulation]:
    """Return a pool's newest simulations, without their results. A single query."""
    rows = Simulation.objects.filter(pool_id=pool_id).select_related("asked_by")
    return list(rows.defer("result")[:LISTED])


def simulation_of(pool_id: int, simulation_id: int) -> Simulation | None:
    """Return a simulation of a pool, or None if it does not exist. A single query."""
    rows = Simulation.objects.filter(pool_id=pool_id, pk=simulation_id)
    return rows.select_related("asked_by").first()


def newest_lease_comparison(pool_id: int) -> Simulation | None:
    """Return a pool's newest comparison of lease lengths that is open or done. A single query."""
    rows = Simulation.objects.filter(
        pool_id=pool_id,
        kind=Simulation.Kind.LEASE_LENGTHS,
        state__in=(*Simulation.OPEN_STATES, Simulation.State.DONE),
    )
    return rows.order_by("-id").first()


def open_jobs(pool_id: int) -> int:
    """Return the number of jobs with which a simulation would start."""
    jobs = Job.objects.filter(pool_id=pool_id, state__in=Job.ACTIVE_STATES, quarantine="")
    return jobs.count()


def own_replays(tenant_id: int, pool_ids: Collection[int]) -> list[OwnReplay]:
    """Return the newest replays that show tenants their results, with only this tenant's.

    The query reads no figure of a pool or of another tenant. A single query.
    """
    rows = Simulation.objects.filter(
        pool_id__in=pool_ids, is_shown=True, result__tenants__has_key=str(tenant_id)
    ).order_by("-id")
    fields = ("pk", "pool__name", "at", "hours", "result__policies", "policy")
    return [
        OwnReplay(
            pk, pool, at, hours // 24, tuple(run["policy"] for run in runs), policy, tuple(figures)
        )
        for pk, pool, at, hours, runs, policy, figures in rows.values_list(
            *fields, f"result__tenants__{tenant_id}"
        )[:SHOWN]
    ]
