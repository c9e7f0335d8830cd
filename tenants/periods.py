"""A tenant's quota of one GPU type as a sequence of periods, and changes of that sequence. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from evenshare_core.domain.entitlements import effective_quotas

# A quota's owner and type: (tenant id, GPU type id).
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class QuotaTerms:
    """The terms of a period: GPUs, mode, and limits (None is no limit)."""

    gpus: int
    mode: str
    borrow_limit: int | None = None
    lend_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """The terms of a quota from an instant until another (open-ended if None)."""

    terms: QuotaTerms
    since: datetime
    until: datetime | None = None

    def holds_at(self, at: datetime) -> bool:
        """Return whether the period contains the instant; its end is exclusive."""
        return self.since <= at and (self.until is None or at < self.until)


class OverlapError(ValueError):
    """The new period would overlap a planned one, `period`."""

    def __init__(self, period: Period) -> None:
        super().__init__(f"a period of {period.terms.gpus} begins {period.since}")
        self.period = period


def period_at(periods: Iterable[Period], at: datetime) -> Period | None:
    """Return the period that contains an instant, or None."""
    return next((period for period in periods if period.holds_at(at)), None)


def set_periods(
    periods: Sequence[Period], *, since: datetime, until: datetime | None, terms: QuotaTerms | None
) -> tuple[Period, ...]:
    """Return the periods with `terms` from `since` until `until`; terms None ends the quota.

    `until` None is open-ended. The period that runs at `since` is closed there, and continues after
    `until` if it would have lasted longer. Equal neighbours become one.

    Raises:
        OverlapError: another period starts before `until`.
        ValueError: the period would be empty.
    """
    if until is not None and until <= since:
        raise ValueError("the end of a period must be after its start")
    kept: list[Period] = []
    for period in periods:
        ended = period.until is not None and period.until <= since
        if ended or (until is not None and period.since >= until):
            kept.append(period)
        elif period.since > since:
            raise OverlapError(period)
        else:
            kept += _rest(period, since, until)
    if terms is not None:
        kept.append(Period(terms, since, until))
    return _joined(kept)


def _rest(period: Period, since: datetime, until: datetime | None) -> list[Period]:
    rest = [replace(period, until=since)] if period.since < since else []
    if until is not None and (period.until is None or until < period.until):
        rest.append(replace(period, since=until))
    return rest


def _joined(periods: Iterable[Period]) -> tuple[Period, ...]:
    joined: list[Period] = []
    for period in sorted(periods, key=lambda period: period.since):
        last = joined[-1] if joined else None
        if last is not None and last.until == period.since and last.terms == period.terms:
            joined[-1] = replace(last, until=period.until)
        else:
            joined.append(period)
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class Dilution:
    """Quotas of a GPU type whose sum exceeds the pool's GPUs, from `at` on.

    `losers`: tenants that effectively get fewer GPUs although their quota is not reduced, as
    (tenant id, quota, GPUs before, GPUs after).
    """

    gpu_type: int
    at: datetime
    quotas: int
    capacity: int
    losers: tuple[tuple[int, int, int, int], ...]


def find_dilutions(
    before: Mapping[Key, Sequence[Period]],
    after: Mapping[Key, Sequence[Period]],
    capacity: Mapping[int, int],
    since: datetime,
) -> tuple[Dilution, ...]:
    """Return each GPU type's dilution by a change, at the instant with the largest sum of quotas.

    `before` and `after`: all quotas of a pool, from `since` on; `capacity`: GPUs by type.
    """
    changed = {key[1] for key in after if tuple(after[key]) != tuple(before.get(key, ()))}
    dilutions = []
    for gpu_type in sorted(changed):
        edges = {since} | {
            period.since
            for key, periods in after.items()
            for period in periods
            if key[1] == gpu_type and period.since > since
        }
        of_type = (_dilution(before, after, gpu_type, capacity, at) for at in sorted(edges))
        worst = max((one for one in of_type if one), key=lambda one: one.quotas, default=None)
        if worst:
            dilutions.append(worst)
    return tuple(dilutions)


def _dilution(
    before: Mapping[Key, Sequence[Period]],
    after: Mapping[Key, Sequence[Period]],
    gpu_type: int,
    capacity: Mapping[int, int],
    at: datetime,
) -> Dilution | None:
    gpus = capacity.get(gpu_type, 0)
    was, becomes = _gpus_at(before, gpu_type, at), _gpus_at(after, gpu_type, at)
    total = sum(becomes.values())
    if total <= gpus or total <= sum(was.values()):
        return None
    old = dict(zip(was, effective_quotas(list(was.values()), gpus), strict=True))
    new = dict(zip(becomes, effective_quotas(list(becomes.values()), gpus), strict=True))
    losers = tuple(
        (tenant, becomes[tenant], old[tenant], new[tenant])
        for tenant in becomes
        if tenant in was and becomes[tenant] >= was[tenant] and new[tenant] < old[tenant]
    )
    return Dilution(gpu_type, at, total, gpus, losers)


def _gpus_at(quotas: Mapping[Key, Sequence[Period]], gpu_type: int, at: datetime) -> dict[int, int]:
    held = ((key[0], period_at(quotas[key], at)) for key in sorted(quotas) if key[1] == gpu_type)
    return {tenant: period.terms.gpus for tenant, period in held if period}
