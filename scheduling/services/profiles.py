"""Declares, changes and deletes a tenant's job types with their speeds on a pool's GPU types."""

from fractions import Fraction
from typing import Any

from django.db.models import Max
from django.utils.translation import gettext as _

from evenshare_core.domain.measured_speeds import compare, used_speedups
from evenshare_core.domain.profiles import speedups_normal
from evenshare_core.units import ONE_MILLI
from scheduling.models import Job, Pool, Profile
from scheduling.requests.profiles import ProfileRequest
from scheduling.selectors.speeds.profiles import pool_types
from scheduling.services.job_requests import NO_TYPE
from tenants.audit import Actor, changed, write_audit
from tenants.input.errors import FieldErrors, invalid
from tenants.models import Tenant
from tenants.scopes import tenant_scope

PROFILES_MAX = 200


class InUseError(Exception):
    """Jobs of this type wait or run; nothing was deleted."""

    def __init__(self, jobs: int) -> None:
        super().__init__(f"jobs of this type wait or run: {jobs}")
        self.jobs = jobs


def put_profile(
    *, tenant: Tenant, actor: Actor, pool_id: int, name: str, request: ProfileRequest
) -> Profile:
    """Declare the job type `name`, or replace its speeds; the slowest type's speed becomes 1.

    Running leases keep the speed of their launch; later rounds and launches use the new speeds. If
    speeds were measured, the measured ones are used; the declared speeds are stored and compared
    with them. A job type whose profiling run reported nothing may get another run.

    Raises:
        InvalidInputError: a GPU type is not in the pool, or is left out while jobs accept it.
    """
    with tenant_scope(tenant.pk):
        # Serialized by tenant: two requests may declare the same name at once.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        pool = Pool.objects.get(pk=pool_id)
        rows = Profile.objects.select_for_update().filter(pool=pool, tenant=tenant)
        row = rows.filter(name=name).first()
        _check(pool, row, request)
        if row is None and rows.count() >= PROFILES_MAX:
            raise invalid(
                "name",
                _("would be the tenant's {count}st").format(count=PROFILES_MAX + 1),
                _("Drop one first."),
            )
        before = {} if row is None else _state(row)
        row = row or Profile(pool=pool, tenant=tenant, name=name)
        row.declared, row.priority = _normal(request), request.priority
        row.speedups = used_speedups(row.declared, row.as_measured)
        if not compare(row.declared, row.as_measured):
            row.source, row.measured_at, row.measured_job = Profile.Source.DECLARED, None, None
        # new profiling runs may measure the job type after this declaration
        row.past_run = _last_run(row) if before else 0
        was, becomes = changed(before, _state(row))
        if becomes or before:
            row.save()
        if becomes:
            action = "profile.changed" if before else "profile.declared"
            write_audit(actor, action, _subject(row), before=was, after=becomes)
    return row


def _normal(request: ProfileRequest) -> dict[str, int]:
    return speedups_normal({kind: Fraction(speed) for kind, speed in request.speeds.items()})


def _last_run(row: Profile) -> int:
    return row.jobs.filter(profiling_s__gt=0).aggregate(newest=Max("pk"))["newest"] or 0


def _check(pool: Pool, row: Profile | None, request: ProfileRequest) -> None:
    errors = FieldErrors()
    there = pool_types(pool.pk)
    for kind in sorted(set(request.speeds) - set(there)):
        hint = _("The pool has: {there}.").format(there=", ".join(there) or _("none"))
        errors.add(f"speeds.{kind}", _(NO_TYPE), hint, "unknown")
    for kind in sorted(set(row.speedups if row else ()) - set(request.speeds)):
        # If a job accepted only types on which it cannot run, every round would fail.
        jobs = row.jobs.filter(state__in=Job.ACTIVE_STATES, gpu_types__contains=[kind]).count()  # type: ignore[union-attr]  # then there is a row
        if jobs:
            hint = _("Cancel them, wait until they end, or declare another job type.")
            errors.add(
                f"speeds.{kind}",
                _("is missing, but jobs accept it: {jobs}").format(jobs=jobs),
                hint,
                "in_use",
            )
    errors.raise_any(order=("speeds",))


def drop_profile(*, tenant: Tenant, actor: Actor, pool_id: int, name: str) -> bool:
    """Delete a job type; return False if it does not exist.

    Jobs that ended lose their reference to it.

    Raises:
        InUseError: jobs of this type wait or run.
    """
    with tenant_scope(tenant.pk):
        rows = Profile.objects.select_for_update(of=("self",)).select_related("pool")
        row = rows.filter(pool_id=pool_id, tenant=tenant, name=name).first()
        if row is None:
            return False
        active = row.jobs.filter(state__in=Job.ACTIVE_STATES).count()
        if active:
            raise InUseError(active)
        row.jobs.update(profile=None)
        write_audit(actor, "profile.dropped", _subject(row), before=_state(row))
        row.delete()
    return True


def _state(row: Profile) -> dict[str, Any]:
    return {
        "speeds": {kind: f"{milli / ONE_MILLI:.3f}" for kind, milli in row.as_declared.items()},
        "priority": row.priority,
        "source": row.source,
    }


def _subject(row: Profile) -> str:
    return f"pool {row.pool.name}, {row.tenant.slug}, {row.name}"[:140]
