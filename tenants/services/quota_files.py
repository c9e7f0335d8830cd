"""Applies a reviewed quota file: first a plan for review, then all of it or nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.utils.translation import gettext as _

from tenants.audit import Actor
from tenants.input.errors import CONFLICT, FieldError, InvalidInputError, invalid
from tenants.language import gettext_noop
from tenants.models import Quota, Tenant
from tenants.operator_transaction import operation
from tenants.periods import Key, Period
from tenants.quota_files import (
    QuotaChange,
    QuotaLine,
    QuotaName,
    peak,
    periods_from,
    quota_rows,
    replace_periods,
    wanted_periods,
)
from tenants.selectors.quota_records import dilution_text
from tenants.services.quotas import (
    QuotaPlan,
    plan_dilutions,
    quota_periods,
    write_plan,
)


@dataclass(frozen=True, slots=True)
class PoolToday:
    """A pool's data for a plan: its time, its GPUs that are up, by type, and its next round."""

    id: int
    name: str
    book: str
    now: datetime
    capacity: Mapping[str, int]
    next_round: int


@dataclass(frozen=True, slots=True)
class QuotaSum:
    """The sum of a pool's quotas of a type: now, the maximum (from `at` on), and the GPUs up."""

    pool: str
    gpu_type: str
    now: int
    most: int
    at: datetime
    capacity: int

    @property
    def over(self) -> int:
        """Return by how many GPUs the quotas exceed the live GPUs; effective quotas then shrink."""
        return max(0, self.most - self.capacity)


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """The changes of a file, and the resulting sums."""

    changes: tuple[QuotaChange, ...]
    sums: tuple[QuotaSum, ...]
    plans: tuple[tuple[PoolToday, QuotaPlan], ...]
    warnings: tuple[str, ...] = ()


def plan_quota_sync(
    lines: Sequence[QuotaLine], pools: Mapping[str, PoolToday], types: Mapping[str, int]
) -> SyncPlan:
    """Return the changes that a file's rows cause; `pools` must contain all pools of the file.

    A quota that these pools have, but the file does not, ends now. `types` are ids by name.

    Raises:
        InvalidInputError: a row names an unknown pool, type or tenant.
    """
    tenants = dict(Tenant.objects.values_list("slug", "id"))
    _check_names(lines, pools, types, tenants)
    changes: list[QuotaChange] = []
    sums: list[QuotaSum] = []
    plans: list[tuple[PoolToday, QuotaPlan]] = []
    warnings: list[str] = []
    slugs = {id_: slug for slug, id_ in tenants.items()}
    names = {id_: name for name, id_ in types.items()}
    for pool in (pools[name] for name in sorted(pools)):
        mine = [line for line in lines if line.name.pool == pool.name]
        plan, later = _pool_plan(pool, mine, types, tenants)
        plans.append((pool, plan))
        changes += [
            QuotaChange(
                QuotaName(slugs[tenant], pool.name, names[gpu_type]),
                periods_from(plan.before[tenant, gpu_type], pool.now),
                periods_from(plan.after[tenant, gpu_type], pool.now),
            )
            for tenant, gpu_type in plan.keys
        ]
        sums += _sums(pool, later, names)
        diluted = plan_dilutions(plan, pool.now, _by_type(pool, types))
        warnings += [f"{pool.name} {dilution_text(row)}" for row in diluted]
    ordered = sorted(changes, key=lambda one: one.name)
    return SyncPlan(tuple(ordered), tuple(sums), tuple(plans), tuple(warnings))


def _by_type(pool: PoolToday, types: Mapping[str, int]) -> dict[int, int]:
    return {types[name]: gpus for name, gpus in pool.capacity.items() if name in types}


def _check_names(
    lines: Iterable[QuotaLine],
    pools: Mapping[str, PoolToday],
    types: Mapping[str, int],
    tenants: Mapping[str, int],
) -> None:
    errors = [
        FieldError(
            field,
            _(text).format(name=name),
            line=line.line,
        )
        for line in lines
        for field, text, name, known in (
            ("tenant", gettext_noop("there is no tenant {name!a} here"), line.name.tenant, tenants),
            ("pool", gettext_noop("there is no pool {name!a} here"), line.name.pool, pools),
            (
                "gpu_type",
                gettext_noop("there is no GPU type {name!a} here"),
                line.name.gpu_type,
                types,
            ),
        )
        if name not in known
    ]
    if errors:
        raise InvalidInputError(errors)


def _pool_plan(
    pool: PoolToday,
    lines: Sequence[QuotaLine],
    types: Mapping[str, int],
    tenants: Mapping[str, int],
) -> tuple[QuotaPlan, dict[Key, tuple[Period, ...]]]:
    by_key: dict[Key, list[QuotaLine]] = {}
    for line in lines:
        key = tenants[line.name.tenant], types[line.name.gpu_type]
        by_key.setdefault(key, []).append(line)
    present = quota_periods(pool.id, pool.now)
    before: dict[Key, tuple[Period, ...]] = {}
    after: dict[Key, tuple[Period, ...]] = {}
    later: dict[Key, tuple[Period, ...]] = {}
    for key in sorted({*present, *by_key}):
        old = present.get(key, ())
        new = replace_periods(old, wanted_periods(by_key.get(key, ()), pool.now), pool.now)
        later[key] = periods_from(new, pool.now)
        if new != old:
            before[key], after[key] = old, new
    return QuotaPlan(pool.id, pool.now, before, after), later


def _sums(
    pool: PoolToday, later: Mapping[Key, tuple[Period, ...]], names: Mapping[int, str]
) -> list[QuotaSum]:
    gpu_types = sorted({names[type_id] for _, type_id in later} | set(pool.capacity))
    sums = []
    for gpu_type in gpu_types:
        rows = [periods for (_, type_id), periods in later.items() if names[type_id] == gpu_type]
        now, most, at = peak(rows, pool.now)
        sums.append(QuotaSum(pool.name, gpu_type, now, most, at, pool.capacity.get(gpu_type, 0)))
    return sums


def sync_quotas(
    *,
    actor: Actor,
    lines: Sequence[QuotaLine],
    pools: Mapping[str, PoolToday],
    types: Mapping[str, int],
    reason: str,
) -> SyncPlan:
    """Set the quotas of `pools` by a file, with a record per pool; return the changes.

    Raises:
        InvalidInputError: as `plan_quota_sync`, or quotas were changed concurrently.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        # The plan is made again on locked rows, because the reviewed plan may be a minute old.
        ids = sorted(pool.id for pool in pools.values())
        list(Quota.objects.select_for_update().filter(pool_id__in=ids).order_by("id"))
        plan = plan_quota_sync(lines, pools, types)
        for pool, one in plan.plans:
            if one.after:
                _save(actor, pool, one, types, reason)
    return plan


def _save(
    actor: Actor, pool: PoolToday, plan: QuotaPlan, types: Mapping[str, int], reason: str
) -> None:
    try:
        write_plan(
            plan,
            actor=actor,
            pool_name=pool.name,
            book=pool.book,
            now=pool.now,
            next_round=pool.next_round,
            capacity=_by_type(pool, types),
            reason=reason,
        )
    except InvalidInputError as error:
        # A quota that is created at the same time is not locked; the database's constraint decides.
        message = _("the quotas of {pool} are being changed by another user: try again").format(
            pool=pool.name
        )
        raise invalid("", message, code=CONFLICT, line=0) from error


def export_quotas(
    pools: Iterable[PoolToday], types: Mapping[str, int], *, history: bool
) -> list[dict[str, str]]:
    """Return the quotas of pools as rows of a file: from now on, or their whole history."""
    slugs = dict(Tenant.objects.values_list("id", "slug"))
    names = {id_: name for name, id_ in types.items()}
    first = datetime.min.replace(tzinfo=UTC)
    periods: dict[QuotaName, Sequence[Period]] = {}
    for pool in pools:
        present = quota_periods(pool.id, first if history else pool.now)
        for (tenant, gpu_type), rows in present.items():
            periods[QuotaName(slugs[tenant], pool.name, names[gpu_type])] = rows
    return quota_rows(periods)
