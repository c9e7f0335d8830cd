"""What the next round would do with a job that is asked about, and else when it may start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random

from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Grant
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.plurals import plural
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.policies.job_reasons import reason_of
from evenshare_core.simulation.present import Start, Work
from evenshare_core.simulation.starts import (
    RUNS,
    EstimatedStart,
    NoEstimate,
    estimate_starts,
)
from evenshare_core.units import HOUR_US, SECOND_US
from scheduling.models import Pool
from scheduling.selectors.jobs.reasons import why
from scheduling.selectors.jobs.start_estimates import NO_ESTIMATE
from scheduling.selectors.jobs.work_left import work_done
from scheduling.services.asked_round import AskedRound
from scheduling.services.execute_forecast import latest_correction
from scheduling.services.start_history import read_history
from tenants.scopes import site_scope

HORIZON_US = 24 * HOUR_US


@dataclass(frozen=True, slots=True)
class NextRound:
    """What round `number` would do, if nothing else changes.

    `starts`: it would grant the job `own` and `borrowed` GPUs of `gpu_type`, at `price_micro`, for
    which leases end early: `preempted_own` of its own tenant, `preempted` in all, of
    `preempted_tenants` other tenants; `moved` go on elsewhere. They have `notice_s` to stop.
    Else `reason_code` says why not, and `p50`, `p90` when it is expected to start; without a p50
    `eta_reason` says why there is no honest estimate. `text` is all of this in words.
    """

    number: int
    at: datetime
    starts: bool
    text: str = ""
    gpu_type: str = ""
    own: int = 0
    borrowed: int = 0
    price_micro: int = 0
    after_micro: int = 0
    preempted: int = 0
    preempted_own: int = 0
    preempted_tenants: int = 0
    moved: int = 0
    notice_s: int = 0
    reason_code: str = ""
    p50: datetime | None = None
    p90: datetime | None = None
    eta_reason: str = ""


def next_round(asked: AskedRound, *, budget_s: float, timer: Callable[[], float]) -> NextRound:
    """Return what a round with a decision would do with the job that it was asked about.

    Where it would leave it waiting, the next 24 hours are simulated for `budget_s` seconds of
    `timer` at most.
    """
    decision, job, snapshot = asked.decision, asked.job, asked.snapshot
    assert decision is not None  # noqa: S101 - the caller has seen to it
    assert job is not None  # noqa: S101 - the same
    grant = next((row for row in decision.grants if row.job == job.id), None)
    if grant is not None:
        return _started(asked, decision, grant)
    reason = reason_of(snapshot, decision, job.id)
    eta = _look_ahead(asked, job.id, budget_s, timer)
    code = reason.reason.value if reason else ""
    rendered = why(code, reason.numbers if reason else None)
    eta_reason = eta.reason.value if eta.reason else ""
    waits = (
        f"Round {asked.number:,} would not start it yet. {rendered.sentence} {rendered.next_step}"
    )
    return NextRound(
        asked.number,
        from_us(snapshot.at_us),
        starts=False,
        text=f"{waits} {_eta_text(eta, snapshot.at_us)}",
        reason_code=code,
        p50=None if eta.p50_us is None else from_us(eta.p50_us),
        p90=None if eta.p90_us is None else from_us(eta.p90_us),
        eta_reason=eta_reason,
    )


def _started(asked: AskedRound, decision: Decision, grant: Grant) -> NextRound:
    at = from_us(asked.snapshot.at_us)
    early = [row for row in decision.preemptions if row.for_job == grant.job]
    ended = [row for row in early if row.rule is not PreemptionRule.DEFRAGMENT]
    posted = {row.gpu_type: row.price_micro for row in decision.prices}
    with site_scope():
        notice_s = Pool.objects.values_list("grace_s", flat=True).get(pk=asked.snapshot.pool)
    answer = NextRound(
        asked.number,
        at,
        starts=True,
        gpu_type=grant.gpu_type,
        own=grant.own,
        borrowed=grant.borrowed,
        price_micro=grant.price_micro if grant.borrowed else 0,
        after_micro=posted.get(grant.gpu_type, 0) if grant.borrowed else 0,
        preempted=len(ended),
        preempted_own=sum(row.tenant == grant.tenant for row in ended),
        preempted_tenants=len({row.tenant for row in ended} - {grant.tenant}),
        moved=len(early) - len(ended),
        notice_s=notice_s if early else 0,
        p50=at,
        p90=at,
    )
    return _with_text(answer)


def _with_text(row: NextRound) -> NextRound:
    gpus = [f"{plural(row.own, 'own GPU')}"] if row.own else []
    gpus += [f"{row.borrowed:,} borrowed"] if row.borrowed else []
    text = f"As things stand, round {row.number:,} would start it, on {' and '.join(gpus)}."
    parts = []
    if row.preempted:
        whose = []
        if row.preempted_tenants:
            whose.append(plural(row.preempted_tenants, "other tenant"))
        if row.preempted_own:
            whose.append(f"your own ({plural(row.preempted_own, 'lease')})")
        parts.append(f"preempt {plural(row.preempted, 'lease')} of {' and '.join(whose)}")
    if row.moved:
        parts.append(f"move {plural(row.moved, 'lease')} to other nodes")
    if parts:
        text += (
            f" It would {' and '.join(parts)} for it; the job begins when these have stopped,"
            f" within {row.notice_s:,} s."
        )
    return dataclasses.replace(row, text=text)


def _look_ahead(
    asked: AskedRound, job: int, budget_s: float, timer: Callable[[], float]
) -> EstimatedStart:
    """Simulate ahead for this job alone."""
    if budget_s <= 0:
        return EstimatedStart(None, reason=NoEstimate.TOO_MUCH_WORK)
    snapshot, began_s = asked.snapshot, timer()
    jobs = tuple(row for row in snapshot.jobs if row.id != job)
    with site_scope():
        work = {job: Work(0), **work_done(replace(snapshot, jobs=jobs))}
        history = read_history(snapshot.pool, from_us(snapshot.at_us))
        correction = latest_correction(snapshot)

    def stop(number: int) -> bool:
        return timer() - began_s > budget_s * (number + 1) / RUNS

    forecast = estimate_starts(
        Start(snapshot, work),
        history,
        until_us=snapshot.at_us + HORIZON_US,
        rng=Random(f"{snapshot.pool} {asked.number} {job}"),  # noqa: S311 - draws, not secrets
        correction=correction,
        stop=stop,
        only=(job,),
    )
    return forecast.starts.get(job, EstimatedStart(None, reason=NoEstimate.TOO_MUCH_WORK))


def _eta_text(eta: EstimatedStart, at_us: int) -> str:
    if eta.p50_us is None:
        because = NO_ESTIMATE.get(eta.reason.value, "") if eta.reason else ""
        return f"No honest estimate of when it starts. {because}".strip()
    text = f"Expected to start within {_minutes(eta.p50_us - at_us)} (p50)"
    if eta.p90_us is None:
        return f"{text}; no honest p90."
    return f"{text}, {_minutes(eta.p90_us - at_us)} (p90), of pool time."


def _minutes(us: int) -> str:
    """A wait, rounded up."""
    minutes = -(-us // (60 * SECOND_US))
    return f"{minutes:,} min" if minutes < 120 else f"{-(-minutes // 60):,} h"
