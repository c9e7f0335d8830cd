"""Requests, starts, cancellations and failures of simulations of a pool.

`scheduling.services.execute_simulation` runs them in a separate process. All states change by
compare-and-swap on (state, claim), so the process of a simulation that was cancelled or given up
writes nothing more.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog
from celery import current_app
from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from scheduling.engine.clock import read_clock, wall_now
from scheduling.models import Job, Pool, Simulation
from scheduling.requests.simulations import (
    HOURS,
    HistoryRequest,
    LeaseComparisonRequest,
    SimulationRequest,
)
from scheduling.selectors.stored_texts import SIMULATION_LOST
from scheduling.services.pools import complete_options
from tenants.audit import Actor, write_audit
from tenants.input.errors import FieldErrors, invalid
from tenants.language import number, plural
from tenants.operator_transaction import operation
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)

OPEN_MOST = 2  # the maximum number of queued or running simulations per pool
RUNNING_MOST = 1  # the maximum number of running simulations; rounds need the other core.
# The limit of open jobs x rounds x policies: about five minutes of one core with simple policies.
WORK_MOST = 150_000_000
# The limit of jobs x policies of a replay: minutes of a core and half a GiB with simple policies.
REPLAYED_MOST = 200_000
LOST = timedelta(seconds=60)
LOST_FAILURE = SIMULATION_LOST
State = Simulation.State


def request_simulation(*, actor: Actor, pool_id: int, request: SimulationRequest) -> Simulation:
    """Request a simulation of the pool's next hours under a policy, compared with its present one.

    Raises:
        InvalidInputError: on `policy`, `options.NAME` or `hours`; without a field if no job is open
            or too many simulations are open.
    """
    with operation(actor):
        pool = _locked(pool_id)
        errors = FieldErrors()
        chosen = complete_options(request.policy, request.options, errors)
        errors.raise_any()
        jobs = Job.objects.filter(pool=pool, state__in=Job.ACTIVE_STATES, quarantine="").count()
        _refuse_too_much(pool, jobs, request.hours)
        return _create(actor, pool, policy=request.policy, options=chosen, hours=request.hours)


def request_lease_comparison(
    *, actor: Actor, pool_id: int, request: LeaseComparisonRequest
) -> Simulation:
    """Request runs of the pool's last days with several lease lengths.

    Raises:
        InvalidInputError: too many simulations are open.
    """
    with operation(actor):
        pool = _locked(pool_id)
        return _create(
            actor,
            pool,
            kind=Simulation.Kind.LEASE_LENGTHS,
            policy=pool.policy,
            options={"restart_s": request.restart_s},
            hours=request.days * 24,
        )


def request_history(*, actor: Actor, pool_id: int, request: HistoryRequest) -> Simulation:
    """Request a replay of a pool's last days under its policy and others, until now.

    With `again`, the days end when those of that earlier replay did.

    Raises:
        InvalidInputError: on `policies`, `days` or `again`; without a field if too many simulations
            are open.
    """
    with operation(actor):
        pool = _locked(pool_id)
        if pool.policy in request.policies:
            text = _("{policy} is the pool's own policy, which is always included.")
            raise invalid("policies", text.format(policy=pool.policy))
        at = _end_of_days(pool, request.again)
        _refuse_too_long(pool, at, request.days, len(request.policies) + 1)
        return _create(
            actor,
            pool,
            kind=Simulation.Kind.HISTORY,
            policy=pool.policy,
            options={"policies": list(request.policies), "seed": request.seed},
            hours=request.days * 24,
            at=at,
        )


def _end_of_days(pool: Pool, again: int | None) -> datetime:
    if again is None:
        return read_clock(pool.pk).pool_at
    rows = Simulation.objects.filter(pool=pool, kind=Simulation.Kind.HISTORY, pk=again)
    at = rows.values_list("at", flat=True).first()
    if at is None:
        message = _("{pool} has no replay {number}.").format(pool=pool.name, number=again)
        raise invalid("again", message)
    return at


def _refuse_too_long(pool: Pool, at: datetime, days: int, policies: int) -> None:
    """Refuse days without jobs, or with too many for a replay under this number of policies."""
    rows = Job.objects.filter(
        pool=pool, submitted_at__gte=at - timedelta(days=days), submitted_at__lte=at
    )
    jobs = rows.count()
    if not jobs:
        text = ngettext(
            "No job of {pool} was submitted in the last day. Choose more days.",
            "No job of {pool} was submitted in the last {days} days. Choose more days.",
            days,
        )
        raise invalid("days", text.format(pool=pool.name, days=number(days)))
    if jobs * policies > REPLAYED_MOST:
        text = _(
            "{jobs} under {policies} policies are too many for one replay. The most is {most} jobs"
            " for this number of policies. Choose fewer days or policies."
        )
        most = number(REPLAYED_MOST // policies)
        raise invalid("days", text.format(jobs=plural(jobs, "job"), policies=policies, most=most))


def show_simulation(*, actor: Actor, simulation_id: int, is_shown: bool) -> bool:
    """Show each tenant its own figures of a finished replay, or hide them.

    Return whether this call changed anything.

    Raises:
        InvalidInputError: it is not a finished replay.
    """
    with operation(actor):
        rows = Simulation.objects.select_for_update(of=("self",)).select_related("pool")
        row = rows.get(pk=simulation_id)
        if row.kind != Simulation.Kind.HISTORY or row.state != State.DONE:
            raise invalid("", _("Only finished replays can be shown to tenants."))
        if row.is_shown == is_shown:
            return False
        row.is_shown = is_shown
        row.save(update_fields=["is_shown"])
        write_audit(
            actor,
            "simulation.shown" if is_shown else "simulation.hidden",
            f"pool {row.pool.name}",
            before={"is_shown": not is_shown, "simulation": row.pk},
            after={"is_shown": is_shown, "simulation": row.pk},
        )
    return True


def _locked(pool_id: int) -> Pool:
    """Lock a pool, so that concurrent requests count each other's simulations.

    Raises:
        InvalidInputError: too many of its simulations are open.
    """
    pool = Pool.objects.select_for_update(no_key=True).get(pk=pool_id)
    open_now = Simulation.objects.filter(pool=pool, state__in=Simulation.OPEN_STATES).count()
    if open_now >= OPEN_MOST:
        message = _(
            "{open_now} simulations of {pool} are queued or running. Cancel one, or wait."
        ).format(open_now=open_now, pool=pool.name)
        raise invalid("", message)
    return pool


def _create(actor: Actor, pool: Pool, **fields: Any) -> Simulation:
    row = Simulation.objects.create(pool=pool, asked_by=actor.user, asked_at=wall_now(), **fields)
    after = {**fields, "simulation": row.pk}
    if row.at is not None:
        after["at"] = row.at.isoformat()
    write_audit(actor, "simulation.asked", f"pool {pool.name}", after=after)
    transaction.on_commit(_wake, robust=True)
    return row


def _refuse_too_much(pool: Pool, jobs: int, hours: int) -> None:
    if not jobs:
        message = _("No job of {pool} is queued or running.").format(pool=pool.name)
        raise invalid("", message)
    if work_of(pool, jobs, hours) > WORK_MOST:
        fits = [one for one in HOURS if work_of(pool, jobs, one) <= WORK_MOST]
        rounds = rounds_of(pool, hours)
        message = _(
            "{jobs} open jobs over {hours} h are {rounds} rounds: too many for one simulation."
        ).format(jobs=number(jobs), hours=hours, rounds=number(rounds))
        later = _("Try again when fewer jobs are open.")
        advice = _("Choose at most {hours} h.").format(hours=fits[-1]) if fits else later
        raise invalid("hours", f"{message} {advice}")


def rounds_of(pool: Pool, hours: int) -> int:
    """Return the number of rounds in `hours` of the pool's time, at its present scale."""
    return hours * 3600 // (pool.round_s * read_clock(pool.pk).scale)


def work_of(pool: Pool, jobs: int, hours: int) -> int:
    """Return open jobs x rounds x two policies; a simulation's run time is proportional to it."""
    return jobs * rounds_of(pool, hours) * 2


def cancel_simulation(*, actor: Actor, simulation_id: int) -> bool:
    """End a simulation that waits or runs; return whether this call ended it.

    Its process notices within seconds and ends without a result.
    """
    with operation(actor):
        row = Simulation.objects.select_for_update(of=("self",)).select_related("pool")
        locked = row.get(pk=simulation_id)
        if not locked.is_open:
            return False
        before = {"state": locked.state, "simulation": locked.pk}
        locked.state, locked.ended_at = State.CANCELLED, wall_now()
        locked.save(update_fields=["state", "ended_at"])
        after = {"state": locked.state, "simulation": locked.pk}
        subject = f"pool {locked.pool.name}"
        write_audit(actor, "simulation.cancelled", subject, before=before, after=after)
        transaction.on_commit(_wake, robust=True)  # a queued simulation may start now
    return True


def claim_simulations() -> list[tuple[int, str]]:
    """Claim as many queued simulations as may run; return (id, claim) of each, oldest first."""
    with site_scope():
        # The lock serializes concurrent claims.
        rows = list(
            Simulation.objects.select_for_update()
            .filter(state__in=Simulation.OPEN_STATES)
            .order_by("id")
        )
        room = RUNNING_MOST - sum(row.state == State.RUNNING for row in rows)
        queued = [row for row in rows if row.state == State.QUEUED][: max(0, room)]
        now = wall_now()
        for row in queued:
            row.state, row.claim = State.RUNNING, uuid4().hex
            row.started_at = row.beat_at = now
            row.save(update_fields=["state", "claim", "started_at", "beat_at"])
    return [(row.pk, row.claim) for row in queued]


def fail_lost_simulations() -> int:
    """Give up running simulations without a heartbeat; return their number."""
    with site_scope():
        now = wall_now()
        lost = Simulation.objects.filter(state=State.RUNNING, beat_at__lt=now - LOST)
        count = lost.update(state=State.FAILED, error=LOST_FAILURE, ended_at=now)
    if count:
        log.warning("simulation.lost", count=count)
    return count


def give_up_simulation(simulation_id: int, claim: str, failure: str) -> bool:
    """End a running simulation as failed; return whether it still ran under this claim."""
    with site_scope():
        fields = {"state": State.FAILED, "error": failure[:600], "ended_at": wall_now()}
        return bool(mine(simulation_id, claim).update(**fields))


def mine(simulation_id: int, claim: str) -> Any:
    """Return a query for the row that this claim's process may write; empty if it was given up."""
    return Simulation.objects.filter(pk=simulation_id, state=State.RUNNING, claim=claim)


def beat_simulation(simulation_id: int, claim: str, progress_milli: int) -> bool:
    """Store the progress; return whether the simulation is still wanted."""
    with site_scope():
        fields = {"progress_milli": progress_milli, "beat_at": wall_now()}
        return bool(mine(simulation_id, claim).update(**fields))


def is_simulation_wanted(simulation_id: int, claim: str) -> bool:
    """Return whether a simulation still runs under this claim."""
    with site_scope():
        return bool(mine(simulation_id, claim).exists())


def _wake() -> None:
    """Start a check of the queue now; if the broker is down, it is checked later."""
    try:
        current_app.send_task("scheduling.simulations", expires=60)
    except Exception:
        log.warning("wake.failed", exc_info=True)
