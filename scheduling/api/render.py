"""Jobs, pools and rounds as JSON: plain dictionaries, money as text, times in UTC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from scheduling.api.answers import deadline_answers_json
from scheduling.api.asked import asked_json, pool_times
from scheduling.api.estimates import estimates_json
from scheduling.api.schemas import EtaBand, NextRoundRow, PreemptedForIt
from scheduling.engine.clock import read_clocks
from scheduling.models import Job
from scheduling.selectors.jobs.lists import LeaseNow, leases_now
from scheduling.selectors.jobs.phases import phase_of
from scheduling.selectors.jobs.queue_order import is_queued, read_queue_orders
from scheduling.selectors.jobs.start_estimates import read_starts
from scheduling.services.next_round import NextRound
from tenants.answers import answer_of, credits_text, plain, time_text


class Money(Protocol):
    """What these views show of money, which lives above them."""

    def charges(self, jobs: Iterable[int]) -> Mapping[int, Decimal]:
        """Return what jobs were charged so far, by id; none for those without a charge."""

    def currency(self, book: str) -> str:
        """Return the word for a book's credits."""


class NoMoney:
    """Stands where nothing else is wired in."""

    def charges(self, jobs: Iterable[int]) -> Mapping[int, Decimal]:
        """Nobody was charged."""
        return dict.fromkeys(jobs, Decimal(0))

    def currency(self, book: str) -> str:
        """A book's own name."""
        return book


def jobs_json(jobs: list[Job], money: Money, root: str) -> list[dict[str, Any]]:
    """Return jobs with their present leases and charges; `root` is the site's address."""
    leases, charges = leases_now(jobs), money.charges([job.pk for job in jobs if job.leases_held])
    queues = queues_json(jobs)
    now, known = pool_times(jobs), estimates_json(jobs)
    answers = deadline_answers_json(jobs, now)
    return [
        job_json(
            job,
            root,
            leases.get(job.pk),
            charges.get(job.pk),
            queue=queues.get(job.pk),
            at=now.get(job.pool_id),
            answer=answers.get(job.pk),
        )
        | known[job.pk]
        for job in jobs
    ]


def job_json(
    job: Job,
    root: str,
    lease: LeaseNow | None = None,
    charge: Decimal | None = None,
    *,
    pool: str = "",
    queue: dict[str, Any] | None = None,
    at: datetime | None = None,
    answer: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one job; `queue`: of `queues_json`. `pool` spares a query where the name is known.

    `at`: pool time now; without it that of its submission. `answer`: of `deadline_answers_json`.
    """
    return {
        "id": str(job.uid),
        "name": job.name,
        "tenant": job.tenant.slug,
        "pool": pool or job.pool.name,
        "state": job.state,
        "phase": phase_of(job.state, [lease.state] if lease else ()),
        "gpus": job.gpus,
        "gpu_types": list(job.gpu_types),
        "profile": None if job.profile is None else job.profile.name,
        "submitted_at": time_text(job.submitted_at),
        "started_at": time_text(job.first_started_at),
        "ended_at": time_text(job.ended_at),
        "exit_code": job.exit_code,
        "reason_code": job.reason_code,
        "queue": queue,
        "estimate": None,
        "stop_estimate": None,
        "losses": job.losses,
        "profiling_s": job.profiling_s,
        "backoff_until": time_text(job.backoff_until),
        "lease": plain(lease),
        "progress": job.progress,
        "charge": credits_text(charge or Decimal(0)),
        "url": f"{root}/jobs/{job.uid}/",
        "deadline_answer": answer,
        **asked_json(job, at or job.submitted_at),
    }


def queues_json(jobs: list[Job]) -> dict[int, dict[str, Any]]:
    """Return where the queued ones of these jobs stand and when they may start, by job id.

    Left out are those that no round has looked at yet, and those in quarantine.
    """
    queued = [job for job in jobs if is_queued(job)]
    if not queued:
        return {}
    orders = read_queue_orders(queued)
    now = {pool: clock.pool_at for pool, clock in read_clocks(orders).items()}
    starts = read_starts(now, [job.pk for job in queued])
    shown = {}
    for job in queued:
        order, start = orders[job.pool_id], starts.get(job.pk)
        place = order.positions.get(job.pk)
        is_unseen = order.round is None or (order.is_ordered and not order.is_long)
        if place is None and start is None and is_unseen:
            continue
        shown[job.pk] = {
            "round": order.round,
            "position": place.pool if place else None,
            "tenant_position": place.tenant if place else None,
            "order": order.text,
            "start": plain(start),
        }
    return shown


def next_round(row: NextRound) -> NextRoundRow:
    """Return what a dry run says of the next round."""
    preempted, eta = answer_of(PreemptedForIt, row), answer_of(EtaBand, row)
    return answer_of(NextRoundRow, row, preempted=preempted, eta=eta)
