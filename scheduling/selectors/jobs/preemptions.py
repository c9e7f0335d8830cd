"""Leases that rounds ended early: the rule and the beneficiary, as a viewer may see them.

They are read from the events that gave notice, which are never deleted. The pool's visibility
decides which tenants are named (`scheduling.selectors.visibility`). Job names are shown to members
of their tenant and to operators. The numbers that a rule compared are shown if the viewer sees both
tenants.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

from django.db.models import Q

from evenshare_core.domain.reasons import EndReason
from scheduling.models import Job, Lease, LeaseEvent
from scheduling.selectors.jobs.reasons import Numbers, preemption_text
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.answers import Answer, Hidden, about
from tenants.scopes import site_reading

MADE_WAY_MAX = 50  # the maximum number of leases shown that ended early for one job


class PreemptionRow(Answer, frozen=True):
    """A lease that ended before its expiry, with notice; times are pool time.

    `tenant` and `job` lost the GPUs, `for_tenant` and `for_job` got them; null if you may not see
    them. `numbers`: the values that the rule compared, if you may see both tenants.
    """

    number: Hidden[int]  # the number of the event that gave notice
    lease: Hidden[int]
    finished: Hidden[bool]  # the process ended by itself before the stop
    at: Annotated[datetime, about("When notice was given.")]
    round: int
    rule: Annotated[str, about("guarantee, pays, defragment, gang or promise.")]
    words: str  # the name of the rule, worded to end a sentence
    moved: Annotated[bool, about("The job continued on other nodes.")]
    gpus: int
    gpu_type: str
    tenant: VisibleTenant | None
    job: JobRef | None
    for_tenant: VisibleTenant | None
    for_job: JobRef | None
    numbers: Numbers
    notice_s: Annotated[int, about("Maximum seconds to save its state.")]
    released_at: Annotated[datetime | None, about("When its GPUs became free.")]
    unused: Annotated[bool, about("Whether the beneficiary gave the GPUs up before it started.")]

    @property
    def notice_used_s(self) -> float | None:
        """Seconds from the notice to the end of the process; None if it has not ended yet."""
        return None if self.released_at is None else (self.released_at - self.at).total_seconds()


def list_preemptions(
    pool_id: int, visibility: Visibility, *, limit: int, before: int | None = None
) -> tuple[list[PreemptionRow], bool]:
    """Return the pool's leases that ended early, newest first, and whether there are more.

    `before`: the `number` at which a page continues. If rows of other tenants are hidden, only
    leases that involve the viewer's tenants are returned, as loser or beneficiary. Three queries.
    """
    events = LeaseEvent.objects.filter(pool_id=pool_id, data__has_key="rule")
    if visibility.hides:
        own = sorted(visibility.own)
        events = events.filter(Q(tenant__in=own) | Q(data__for_tenant__in=own))
    if before is not None:
        events = events.filter(number__lt=before)
    rows = list(events.select_related("lease__gpu_type").order_by("-number")[: limit + 1])
    shown = rows[:limit]
    return _views(shown, {}, visibility), len(rows) > limit


def preemptions_among(
    events: Iterable[LeaseEvent], leases: Iterable[Lease], visibility: Visibility
) -> dict[int, PreemptionRow]:
    """Return a job's leases that ended early, from its events, by lease id; at most two queries."""
    by_id = {lease.pk: lease for lease in leases}
    notices = [event for event in events if "rule" in event.data and event.lease_id in by_id]
    return {view.lease: view for view in _views(notices, by_id, visibility)}


def last_preemption(job: Job, visibility: Visibility) -> PreemptionRow | None:
    """Return a job's last lease that ended early, or None. Three queries."""
    notices = job.events.filter(data__has_key="rule").select_related("lease__gpu_type")
    return next(iter(_views(list(notices.order_by("-id")[:1]), {}, visibility)), None)


def preemptions_for(job: Job, visibility: Visibility) -> list[PreemptionRow]:
    """Return the last leases that ended early for the benefit of a job, oldest first.

    The caller has checked that the viewer may see the job; the pool's visibility decides which
    tenants are named. Three queries, or one if there are no such leases.
    """
    with site_reading():
        notices = LeaseEvent.objects.filter(
            data__has_key="rule", data__for_job=job.pk, pool_id=job.pool_id
        )
        rows = list(notices.select_related("lease__gpu_type").order_by("-number")[:MADE_WAY_MAX])
    return _views(rows[::-1], {}, visibility)


def _views(
    events: Sequence[LeaseEvent], leases: Mapping[int, Lease], visibility: Visibility
) -> list[PreemptionRow]:
    wanted = {event.job_id or 0 for event in events if visibility.jobs_of(event.tenant_id or 0)}
    wanted |= {
        event.data["for_job"] for event in events if visibility.jobs_of(event.data["for_tenant"])
    }
    jobs: dict[int, JobRef] = {}
    if wanted:
        with site_reading():
            known = Job.objects.filter(id__in=wanted).values_list("id", "uid", "name")
            jobs = {id_: JobRef(uid, name) for id_, uid, name in known}
    used = _used(events)
    views = []
    for event in events:
        lease = leases.get(event.lease_id or 0) or event.lease
        if lease is not None:
            unused = (event.data["for_job"], event.round) not in used
            views.append(_view(event, lease, visibility, jobs, unused=unused))
    return views


def _used(events: Sequence[LeaseEvent]) -> set[tuple[int, int | None]]:
    """Return (job, round) of beneficiaries whose lease of that round started or may still start."""
    if not events:
        return set()
    with site_reading():
        rows = Lease.objects.filter(
            job__in={event.data["for_job"] for event in events},
            granted_round__in={event.round for event in events},
        ).exclude(started_at=None, state=Lease.State.ENDED)
        return set(rows.values_list("job_id", "granted_round"))


def _view(
    event: LeaseEvent,
    lease: Lease,
    visibility: Visibility,
    jobs: Mapping[int, JobRef],
    *,
    unused: bool,
) -> PreemptionRow:
    data = event.data
    tenant, for_tenant = visibility.of(lease.tenant_id), visibility.of(data["for_tenant"])
    ended = lease.end_reason if lease.ended_at else ""
    early = {EndReason.PREEMPTED.value, EndReason.MOVED.value}
    return PreemptionRow(
        number=event.number,
        at=event.at,
        round=event.round or 0,
        lease=lease.pk,
        rule=data["rule"],
        words=preemption_text(data["rule"], for_tenant.name if for_tenant else ""),
        gpus=lease.gpus,
        gpu_type=lease.gpu_type.name,
        notice_s=data["notice_s"],
        moved=data["reason"] == EndReason.MOVED.value,
        finished=bool(ended) and ended not in early,
        released_at=lease.ended_at,
        unused=unused and for_tenant is not None,
        tenant=tenant,
        job=jobs.get(lease.job_id),
        for_tenant=for_tenant,
        for_job=jobs.get(data["for_job"]),
        numbers=data["numbers"] if tenant and for_tenant else {},
    )
