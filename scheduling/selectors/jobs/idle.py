"""GPUs that a tenant's leases hold without using them: now, and by day."""

from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Sum

from evenshare_core.units import HOUR_US
from scheduling.models import IdleDay, IdleReading
from tenants.answers import Answer


class IdleLease(NamedTuple):
    """A running job whose tenant was warned, because all GPUs of its lease idle since `since`."""

    uid: UUID
    name: str
    gpus: int
    since: datetime


class IdleDayRow(Answer, frozen=True):
    """A day of pool time (UTC): GPU-microseconds that were sampled, and those that were idle."""

    day: date
    gpu_sampled_us: int
    gpu_idle_us: int


class HeldIdle(NamedTuple):
    """GPU-hours for which use was sampled, and those in which the GPU idled."""

    sampled_gpu_h: float
    idle_gpu_h: float


def idle_leases(pool_id: int, tenant_id: int, *, limit: int) -> list[IdleLease]:
    """Return a tenant's warned leases, those that idle longest first, with one query."""
    rows = IdleReading.objects.filter(
        idle_since__isnull=False,
        warned_at__isnull=False,
        lease__pool=pool_id,
        lease__tenant=tenant_id,
    ).order_by("idle_since", "lease_id")
    values = rows.values_list("lease__job__uid", "lease__job__name", "lease__gpus", "idle_since")
    return [IdleLease(uid, name, gpus, at) for uid, name, gpus, at in values[:limit] if at]


def idle_days(
    pool_id: int, tenant_id: int, *, limit: int, before: date | None = None
) -> tuple[list[IdleDayRow], date | None]:
    """Return days with samples, newest first, and the day before which the next page starts."""
    rows = IdleDay.objects.filter(pool=pool_id, tenant=tenant_id).order_by("-day")
    if before is not None:
        rows = rows.filter(day__lt=before)
    days = [IdleDayRow(row.day, row.known_us, row.idle_us) for row in rows[: limit + 1]]
    return days[:limit], days[limit - 1].day if len(days) > limit else None


def held_idle(book: str, tenant_id: int, first: date, last: date) -> HeldIdle | None:
    """Return a tenant's sums over days in the pools of a book; None if nothing was sampled."""
    rows = IdleDay.objects.filter(pool__book=book, tenant=tenant_id, day__gte=first, day__lte=last)
    sums = rows.aggregate(known=Sum("known_us"), idle=Sum("idle_us"))
    if not sums["known"]:
        return None
    return HeldIdle(sums["known"] / HOUR_US, sums["idle"] / HOUR_US)
