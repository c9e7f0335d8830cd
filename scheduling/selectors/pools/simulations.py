"""Simulations of a pool, as pages list and show them."""

from __future__ import annotations

from scheduling.models import Job, Simulation

LISTED = 30


def simulations_of(pool_id: int) -> list[Simulation]:
    """The newest ones of a pool, without their results. One query."""
    rows = Simulation.objects.filter(pool_id=pool_id).select_related("asked_by")
    return list(rows.defer("result")[:LISTED])


def simulation_of(pool_id: int, simulation_id: int) -> Simulation | None:
    """One of a pool's simulations; None where it has none of this number. One query."""
    rows = Simulation.objects.filter(pool_id=pool_id, pk=simulation_id)
    return rows.select_related("asked_by").first()


def open_jobs(pool_id: int) -> int:
    """Jobs that a simulation would start with."""
    jobs = Job.objects.filter(pool_id=pool_id, state__in=Job.ACTIVE_STATES, quarantine="")
    return jobs.count()
