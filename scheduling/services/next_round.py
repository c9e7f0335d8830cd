"""The next round's decision about a requested job; if the job waits, an estimate of its start."""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Annotated

from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Grant
from evenshare_core.domain.instants import from_us
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
from scheduling.selectors.jobs.start_estimates import no_estimate_text
from scheduling.selectors.jobs.work_left import work_done
from scheduling.services.asked_round import AskedRound
from scheduling.services.execute_forecast import latest_correction
from scheduling.services.start_history import read_history
from tenants.answers import Answer, Hidden, about
from tenants.language import number, plural
from tenants.scopes import site_scope

HORIZON_US = 24 * HOUR_US


class PreemptedForIt(Answer, frozen=True):
    """Leases that would end early to make room for the job; `own_leases` belong to its tenant."""

    leases: int = 0
    own_leases: int = 0
    other_tenants: int = 0
    moved: Annotated[int, about("Leases that would move to other nodes.")] = 0
    notice_s: Annotated[int, about("Maximum seconds that these leases have to stop.")] = 0

    @property
    def count(self) -> int:
        """The number of leases that would end for the job."""
        return self.leases + self.moved


class EtaBand(Answer, frozen=True):
    """The expected start in pool time. If there is no p50, `reason` explains why."""

    p50: datetime | None
    p90: datetime | None
    reason: str = ""


class NextRound(Answer, frozen=True, kw_only=True, rename={"number": "round", "text": "words"}):
    """The next round's decision about the job, if nothing else changes."""

    COMPONENT = "NextRoundRow"

    number: int
    at: datetime
    starts: bool
    reason_code: Annotated[str, about("Why it would not start.")] = ""
    preempted: PreemptedForIt = PreemptedForIt()
    eta: EtaBand
    text: str
    # If the job starts: the granted GPUs, and the price now and in the following terms.
    gpu_type: Hidden[str] = ""
    own: Hidden[int] = 0
    borrowed: Hidden[int] = 0
    price_micro: Hidden[int] = 0
    after_micro: Hidden[int] = 0


def next_round(asked: AskedRound, *, budget_s: float, timer: Callable[[], float]) -> NextRound:
    """Return the decision of a round about the job that was added to it.

    If the job would wait, the next 24 hours are simulated for at most `budget_s` seconds of
    `timer`.
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
    not_yet = _("Round {number} would not start it yet.").format(number=number(asked.number))
    waits = f"{not_yet} {rendered.sentence} {rendered.next_step}"
    band = EtaBand(
        None if eta.p50_us is None else from_us(eta.p50_us),
        None if eta.p90_us is None else from_us(eta.p90_us),
        eta.reason.value if eta.reason else "",
    )
    return NextRound(
        number=asked.number,
        at=from_us(snapshot.at_us),
        starts=False,
        reason_code=code,
        eta=band,
        text=f"{waits} {_eta_text(eta, snapshot.at_us)}",
    )


def _started(asked: AskedRound, decision: Decision, grant: Grant) -> NextRound:
    at = from_us(asked.snapshot.at_us)
    early = [row for row in decision.preemptions if row.for_job == grant.job]
    ended = [row for row in early if row.rule is not PreemptionRule.DEFRAGMENT]
    posted = {row.gpu_type: row.price_micro for row in decision.prices}
    with site_scope():
        notice_s = Pool.objects.values_list("grace_s", flat=True).get(pk=asked.snapshot.pool)
    preempted = PreemptedForIt(
        leases=len(ended),
        own_leases=sum(row.tenant == grant.tenant for row in ended),
        other_tenants=len({row.tenant for row in ended} - {grant.tenant}),
        moved=len(early) - len(ended),
        notice_s=notice_s if early else 0,
    )
    return NextRound(
        number=asked.number,
        at=at,
        starts=True,
        preempted=preempted,
        eta=EtaBand(at, at),
        text=_text(asked.number, grant, preempted),
        gpu_type=grant.gpu_type,
        own=grant.own,
        borrowed=grant.borrowed,
        price_micro=grant.price_micro if grant.borrowed else 0,
        after_micro=posted.get(grant.gpu_type, 0) if grant.borrowed else 0,
    )


def _text(round_: int, grant: Grant, row: PreemptedForIt) -> str:
    own = plural(grant.own, "own GPU") if grant.own else ""
    borrowed = _("{count} borrowed").format(count=number(grant.borrowed)) if grant.borrowed else ""
    starts = _("Round {number} would start it, on {gpus}.").format(
        number=number(round_), gpus=_both(own, borrowed)
    )
    preempts = moves = ""
    if row.leases:
        others = _other_tenants(row.other_tenants) if row.other_tenants else ""
        mine = _("your own ({leases})").format(leases=plural(row.own_leases, "lease"))
        preempts = _("preempt {leases} of {owners}").format(
            leases=plural(row.leases, "lease"), owners=_both(others, mine if row.own_leases else "")
        )
    if row.moved:
        moves = _("move {leases} to other nodes").format(leases=plural(row.moved, "lease"))
    if not (preempts or moves):
        return starts
    text = _(
        "It would {actions} for it; the job starts after these have stopped, within {seconds} s."
    )
    shown = text.format(actions=_both(preempts, moves), seconds=number(row.notice_s))
    return f"{starts} {shown}"


def _both(first: str, second: str) -> str:
    """Join two texts; one of them may be empty."""
    if not (first and second):
        return first or second
    return _("{first} and {second}").format(first=first, second=second)


def _other_tenants(count: int) -> str:
    return ngettext("{count} other tenant", "{count} other tenants", count).format(
        count=number(count)
    )


def _look_ahead(
    asked: AskedRound, job: int, budget_s: float, timer: Callable[[], float]
) -> EstimatedStart:
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
        because = no_estimate_text(eta.reason.value) if eta.reason else ""
        return " ".join(filter(None, (_("No reliable start estimate."), because)))
    p50 = _minutes(eta.p50_us - at_us)
    if eta.p90_us is None:
        return _("Expected to start within {p50} (p50); no reliable p90.").format(p50=p50)
    text = _("Expected to start within {p50} (p50), {p90} (p90), of pool time.")
    return text.format(p50=p50, p90=_minutes(eta.p90_us - at_us))


def _minutes(us: int) -> str:
    minutes = -(-us // (60 * SECOND_US))
    return f"{number(minutes)} min" if minutes < 120 else f"{number(-(-minutes // 60))} h"
