"""Declares, changes and drops a tenant's job types with their speeds on the GPU types of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from evenshare_core.domain.profiles import speedups_normal
from evenshare_core.units import ONE_MILLI
from scheduling.models import Job, Pool, Profile
from scheduling.selectors.profiles import pool_types
from tenants.audit import Actor, changed, write_audit
from tenants.input import readers
from tenants.input.errors import FieldErrors, invalid
from tenants.input.readers import NAME
from tenants.models import Tenant
from tenants.scopes import tenant_scope

PRIORITY_MAX = 1000
# No GPU is so many times as fast as another; a slip of a unit is.
RATIO_MAX = 1000
PROFILES_MAX = 200


class InUseError(Exception):
    """Jobs that wait or run are of this type; nothing was dropped."""

    def __init__(self, jobs: int) -> None:
        super().__init__(f"{jobs} jobs of this type wait or run")
        self.jobs = jobs


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """What a tenant says of a job type: speeds in any one unit, at least one, each above 0."""

    name: str
    speeds: Mapping[str, Fraction]
    priority: int = 1


def read_profile_spec(name: str, raw: object) -> ProfileSpec:
    """Return what `raw` (a mapping, as parsed from JSON) says of the job type `name`.

    Raises:
        InvalidInputError: with every finding.
    """
    if not isinstance(raw, Mapping):
        raise invalid("", "must be an object", "Send fields by name.")
    errors = FieldErrors()
    given = {str(key): value for key, value in raw.items() if value is not None}
    if not NAME.fullmatch(name):
        hint = "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends."
        errors.add("name", "is not a usable name", hint)
    speeds = _speeds(given.get("speeds"), errors)
    priority = readers.whole(given, "priority", errors, least=1, most=PRIORITY_MAX)
    for extra in sorted(set(given) - {"speeds", "priority"}):
        errors.add(
            extra[:80], "is not a field of a job type", "Fields: speeds, priority.", "unknown"
        )
    errors.raise_any(order=("name", "speeds", "priority"))
    return ProfileSpec(name, speeds, priority or 1)


def _speeds(value: object, errors: FieldErrors) -> dict[str, Fraction]:
    hint = 'Write a speed for each GPU type that it can run on: {"k80": "1", "v100": "4.81"}.'
    if not isinstance(value, Mapping) or not value:
        errors.add("speeds", "must be an object with a speed at least", hint)
        return {}
    if len(value) > 64:
        errors.add("speeds", "has more than 64 GPU types", code="too_long")
        return {}
    given = {f"speeds.{ascii(str(kind))[1:-1][:60]}": speed for kind, speed in value.items()}
    read: dict[str, Fraction] = {}
    for (place, text), kind in zip(given.items(), value, strict=False):
        if not isinstance(kind, str) or not readers.SLUG.fullmatch(kind):
            errors.add(place, "is not a name of a GPU type", hint)
        elif (speed := _speed(text)) is None:
            errors.add(place, "must be a speed above 0", 'Write a number, such as "4.81".')
        else:
            read[kind] = speed
    if read and max(read.values()) > RATIO_MAX * min(read.values()):
        words = "Write all of them in the same unit."
        errors.add("speeds", f"differ by more than {RATIO_MAX:,} times", words)
    return read


def _speed(value: object) -> Fraction | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12:
        return Fraction(value)
    if isinstance(value, str) and readers.CREDITS.fullmatch(value) and Fraction(value) > 0:
        return Fraction(value)
    return None


def put_profile(*, tenant: Tenant, actor: Actor, pool_id: int, spec: ProfileSpec) -> Profile:
    """Declare a job type, or say its speeds anew; the slowest type's becomes 1.

    What runs goes on at the speed with which it was launched; rounds and launches from now on use
    the new speeds. Its speeds count as declared, whatever they were before.

    Raises:
        InvalidInputError: a GPU type is not of the pool, or is left out while jobs accept it.
    """
    with tenant_scope(tenant.pk):
        # One change of a tenant at a time: two may declare the same name at once.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        pool = Pool.objects.get(pk=pool_id)
        rows = Profile.objects.select_for_update().filter(pool=pool, tenant=tenant)
        row = rows.filter(name=spec.name).first()
        _check(pool, row, spec)
        if row is None and rows.count() >= PROFILES_MAX:
            raise invalid("name", f"would be the tenant's {PROFILES_MAX + 1}st", "Drop one first.")
        before = {} if row is None else _state(row)
        row = row or Profile(pool=pool, tenant=tenant, name=spec.name)
        row.speedups, row.priority = speedups_normal(spec.speeds), spec.priority
        row.source, row.measured_at, row.measured_job = Profile.Source.DECLARED, None, None
        was, becomes = changed(before, _state(row))
        if becomes:
            row.save()
            action = "profile.changed" if before else "profile.declared"
            write_audit(actor, action, _subject(row), before=was, after=becomes)
    return row


def _check(pool: Pool, row: Profile | None, spec: ProfileSpec) -> None:
    errors = FieldErrors()
    there = pool_types(pool.pk)
    for kind in sorted(set(spec.speeds) - set(there)):
        hint = f"The pool has: {', '.join(there) or 'none'}."
        errors.add(f"speeds.{kind}", "is not a GPU type of the pool", hint, "unknown")
    for kind in sorted(set(row.speedups if row else ()) - set(spec.speeds)):
        # A job that accepts a type which it cannot run on would stop every round.
        jobs = row.jobs.filter(state__in=Job.ACTIVE_STATES, gpu_types__contains=[kind]).count()  # type: ignore[union-attr]  # then there is a row
        if jobs:
            hint = "Cancel them, or wait for their end; or declare another job type."
            errors.add(f"speeds.{kind}", f"is left out, but {jobs} jobs accept it", hint, "in_use")
    errors.raise_any(order=("speeds",))


def drop_profile(*, tenant: Tenant, actor: Actor, pool_id: int, name: str) -> bool:
    """Drop a job type; False where there is none. Jobs that ended keep no trace of it.

    Raises:
        InUseError: jobs of it wait or run.
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
        "speeds": {kind: f"{milli / ONE_MILLI:.3f}" for kind, milli in row.speedups.items()},
        "priority": row.priority,
        "source": row.source,
    }


def _subject(row: Profile) -> str:
    return f"pool {row.pool.name}, {row.tenant.slug}, {row.name}"[:140]
