"""Actions on many jobs at once: each job separately, with a result for each."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Annotated, ClassVar, NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.utils.translation import gettext as _
from msgspec import Meta

from scheduling.engine.clock import Clocks, PoolNow
from scheduling.models import Job, Pool
from scheduling.requests.job_queue import PRIORITY_MAX
from scheduling.requests.job_tags import TAG_MAX, TAGS_MAX, read_tags
from scheduling.services.holds import hold_job, release_hold, side_of
from scheduling.services.jobs import cancel_job, release_turns
from scheduling.services.priorities import may_set_priority, set_priority
from scheduling.services.submit import BULK, BURST_S
from tenants.answers import Answer, about, one_of
from tenants.audit import Actor
from tenants.input.errors import FieldErrors, InvalidInputError, invalid
from tenants.input.requests import Input, Request, read_request
from tenants.language import gettext_noop
from tenants.permissions import Action, may_in_tenant, may_on_site, seen_tenants
from tenants.rate import Rate, take
from tenants.scopes import tenant_scope, tenants_scope
from tenants.selectors.access import Access

JOBS_MAX = 1000


class ActionOutcome(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


class Done(NamedTuple):
    """The outcome of an action on one job, and a sentence about it."""

    outcome: ActionOutcome
    text: str


@dataclass(frozen=True, slots=True)
class Acting:
    """An action on a job: the person, the pool time, and the values."""

    job: Job
    actor: Actor
    access: Access
    now: PoolNow
    tags: tuple[str, ...]
    priority: int | None


@dataclass(frozen=True, slots=True)
class JobAction:
    """An action that a form and REST offer.

    `permission`: what the person must be allowed to do in the job's tenant. `takes`: the field of
    the request that it needs, if any.
    """

    label: str
    permission: Action
    act: Callable[[Acting], Done]
    takes: str = ""


def _not_own() -> Done:
    return Done(ActionOutcome.REFUSED, _("Only its submitter and managers may do this."))


def _cancel(acting: Acting) -> Done:
    before = acting.job.is_active and acting.job.cancel_asked_at is None
    job = cancel_job(job=acting.job, now=acting.now, releases_others=False)
    if not before:
        text = _("It is already stopping.") if job.is_active else _("It had already ended.")
        return Done(ActionOutcome.UNCHANGED, text)
    text = _("It stops, and may save its state first.") if job.is_active else _("Cancelled.")
    return Done(ActionOutcome.DONE, text)


def _tag(acting: Acting) -> Done:
    return _retag(acting.job, lambda tags: tags | {*acting.tags})


def _untag(acting: Acting) -> Done:
    return _retag(acting.job, lambda tags: tags - {*acting.tags})


def _retag(job: Job, change: Callable[[set[str]], set[str]]) -> Done:
    with tenant_scope(job.tenant_id):
        # The lock keeps another person's tags. The version stays: rounds do not read tags.
        locked = Job.objects.select_for_update(no_key=True).only("tags").get(pk=job.pk)
        tags = sorted(change(set(locked.tags)))
        if tags == sorted(locked.tags):
            return Done(ActionOutcome.UNCHANGED, _tags_text(tags))
        if len(tags) > TAGS_MAX:
            return Done(
                ActionOutcome.REFUSED,
                _("It would have more than {most} tags.").format(most=TAGS_MAX),
            )
        locked.tags = tags
        locked.save(update_fields=["tags"])
    return Done(ActionOutcome.DONE, _tags_text(tags))


def _tags_text(tags: Sequence[str]) -> str:
    return _("Tags: {tags}.").format(tags=", ".join(tags)) if tags else _("No tags.")


def _hold(acting: Acting) -> Done:
    side = side_of(acting.access, acting.job)
    if side is None:
        return _not_own()
    was_free = hold_job(job=acting.job, actor=acting.actor, side=side)
    return (
        Done(ActionOutcome.DONE, _("Held.")) if was_free else Done(SAME, _("It is already held."))
    )


def _release(acting: Acting) -> Done:
    side = side_of(acting.access, acting.job)
    if side is None:
        return _not_own()
    was_held = release_hold(job=acting.job, actor=acting.actor, side=side, now=acting.now)
    return (
        Done(ActionOutcome.DONE, _("Released.")) if was_held else Done(SAME, _("It is not held."))
    )


def _prioritize(acting: Acting) -> Done:
    if not may_set_priority(acting.access, acting.job) or acting.priority is None:
        return _not_own()
    has_changed = set_priority(
        job=acting.job, actor=acting.actor, access=acting.access, priority=acting.priority
    )
    return Done(
        ActionOutcome.DONE if has_changed else SAME,
        _("Priority {priority}.").format(priority=acting.priority),
    )


# The right to cancel a tenant's jobs includes the right to tag them.
ACTIONS: Mapping[str, JobAction] = {
    "cancel": JobAction(gettext_noop("Cancel"), Action.CANCEL, _cancel),
    "tag": JobAction(gettext_noop("Add tags"), Action.CANCEL, _tag, takes="tags"),
    "untag": JobAction(gettext_noop("Remove tags"), Action.CANCEL, _untag, takes="tags"),
    "hold": JobAction(gettext_noop("Hold"), Action.CANCEL, _hold),
    "release": JobAction(gettext_noop("Release"), Action.CANCEL, _release),
    "priority": JobAction(
        gettext_noop("Set priority"), Action.CANCEL, _prioritize, takes="priority"
    ),
}
SAME = ActionOutcome.UNCHANGED
NOT_FOUND = gettext_noop("No job that you may see.")


class JobActionRequest(Request, frozen=True, kw_only=True):
    """An action on jobs. Repeating it is harmless."""

    NOUN: ClassVar[str] = "an action"

    action: Annotated[
        str, Meta(max_length=15, description="What to do."), Input(choices=tuple(ACTIONS))
    ]
    jobs: Annotated[
        tuple[Annotated[str, Meta(max_length=36)], ...],
        Meta(min_length=1, max_length=JOBS_MAX, description="Ids of jobs, at most 1,000."),
    ]
    tags: Annotated[
        tuple[Annotated[str, Meta(max_length=TAG_MAX)], ...],
        Meta(max_length=TAGS_MAX, description="Tags to add or remove."),
    ] = ()
    priority: Annotated[
        Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] | None,
        Meta(description="The new priority; above 0 only for managers."),
    ] = None


class JobActionRow(Answer, frozen=True):
    """The result of an action for one job."""

    id: str
    outcome: Annotated[
        str,
        one_of(*ActionOutcome),
        about("`unchanged`: it was so already. `refused`: nothing was changed."),
    ]
    detail: Annotated[str, about("What was done, or why not.")]
    name: Annotated[str, about("Empty if you may see no such job.")] = ""


def act_on_jobs(*, actor: Actor, access: Access, raw: object, now: Clocks) -> list[JobActionRow]:
    """Act on each named job in its own transaction; return a row for each, in their order.

    A job that the person may not see is refused like one that does not exist.

    Raises:
        InvalidInputError: the request (`JobActionRequest`) is invalid, and changed nothing.
        PermissionDenied: the person may do this in no tenant.
        tenants.rate.RateError: the person acts on too many jobs.
    """
    request = read_request(JobActionRequest, raw)
    action, tags = ACTIONS[request.action], _tags_of(request)
    if not may_on_site(access.site_role, action.permission) and not any(
        may_in_tenant(access, action.permission, one) for one in access.tenant_ids
    ):
        raise PermissionDenied
    names = list(dict.fromkeys(request.jobs))
    per_s = float(settings.SUBMISSIONS_PER_S)
    take(f"act:{actor.user.pk}", Rate(per_s, per_s * BURST_S), min(BULK, len(names)))
    jobs = _visible_jobs(names, access)
    clocks, rows = _RecentClocks(now), []
    ended: dict[tuple[int, int], Pool] = {}
    for name in names:
        job = jobs.get(_uuid(name))
        if job is None:
            rows.append(JobActionRow(name, ActionOutcome.REFUSED, _(NOT_FOUND)))
            continue
        if not may_in_tenant(access, action.permission, job.tenant_id):
            done = Done(ActionOutcome.REFUSED, _("Your role in its tenant does not allow this."))
        else:
            at = clocks.read(job.pool_id)
            done = _done(action, Acting(job, actor, access, at, tags, request.priority))
            if action.act is _cancel and done.outcome is ActionOutcome.DONE:
                ended[job.pool_id, job.tenant_id] = job.pool
        rows.append(JobActionRow(name, done.outcome, done.text, job.name))
    # Once for all jobs. If this step is lost, the next round makes up for it.
    for (pool_id, tenant_id), pool in ended.items():
        release_turns(pool=pool, tenant_id=tenant_id, now=clocks.read(pool_id))
    return rows


class _RecentClocks:
    """The pools' clocks, read again after a second: 1,000 actions may take longer."""

    def __init__(self, now: Clocks) -> None:
        self._now = now
        self._read: dict[int, tuple[float, PoolNow]] = {}

    def read(self, pool_id: int) -> PoolNow:
        read_s, at = self._read.get(pool_id, (-math.inf, None))
        now_s = monotonic()
        if at is None or now_s - read_s >= 1:
            at = self._now(pool_id)
            self._read[pool_id] = (now_s, at)
        return at


def _done(action: JobAction, acting: Acting) -> Done:
    try:
        return action.act(acting)
    except InvalidInputError as error:
        (first, *_) = error.errors
        text = first.reason if first.reason[:1].isupper() else f"{first}."
        return Done(ActionOutcome.REFUSED, f"{text} {first.hint}".strip())


def _tags_of(request: JobActionRequest) -> tuple[str, ...]:
    errors = FieldErrors()
    tags = read_tags(request.tags, errors)
    errors.raise_any()
    takes = ACTIONS[request.action].takes
    if (takes == "tags" and not tags) or (takes == "priority" and request.priority is None):
        raise invalid(takes, _("is required"))
    return tags


def _visible_jobs(names: Sequence[str], access: Access) -> dict[UUID | None, Job]:
    tenants = seen_tenants(access)
    with tenants_scope(tenants):
        jobs = Job.objects.filter(uid__in=[uid for name in names if (uid := _uuid(name))])
        if tenants is not None:
            jobs = jobs.filter(tenant__in=list(tenants))
        return {job.uid: job for job in jobs.select_related("pool")}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
