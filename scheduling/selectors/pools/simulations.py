"""Simulations of a pool, for pages."""

from scheduling.models import Job, Simulation

LISTED = 30


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
