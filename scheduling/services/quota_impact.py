"""A preview of a quota change: a pool's next round, decided with and without it; stores nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import structlog

from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.entitlements import Entitlement, Mode, Tenant, effective_quotas
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot, quotas_since
from evenshare_core.policies.base import decide_round
from scheduling.engine.clock import PoolNow
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import GpuType
from scheduling.selectors.pools.capacity import gpus_by_type
from scheduling.selectors.sharing.settings import NO_RULES, SharingRules, narrowed, sharing_rules
from scheduling.services.round_impact import RoundCounts, RoundImpact, share_rows
from tenants.periods import Key, Period, QuotaTerms, period_at
from tenants.scopes import site_scope
from tenants.selectors.quota_records import dilution_text
from tenants.services.quotas import (
    QuotaEdit,
    QuotaPlan,
    plan_dilutions,
    plan_quotas,
    quota_periods,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact(RoundImpact):
    """The impact of drafted quotas."""

    plan: QuotaPlan
    dilutes: tuple[Mapping[str, Any], ...] = ()

    @property
    def warnings(self) -> list[str]:
        """Return a warning per set of quotas above the pool's GPUs: which tenants lose how much."""
        return [dilution_text(row) for row in self.dilutes]


def quota_impact(
    *, pool_id: int, edits: Sequence[QuotaEdit], since: datetime, now: PoolNow
) -> Impact:
    """Return the next round as if `edits` were in force now, even if they start later.

    It is decided twice: with the present quotas and with the changed ones.

    Raises:
        tenants.input.errors.InvalidInputError: the edits are wrong, as in `save_quotas`.
        RuntimeError: it is called inside a transaction.
    """
    with site_scope():
        plan = plan_quotas(pool_id, edits, since=since, now=now.pool_at)
        number = next_number(pool_id)
        at = next_instant(pool_id, now)
    with site_scope():
        types = dict(GpuType.objects.values_list("id", "name"))
        nominal = _nominal(quota_periods(pool_id, at), at)
        rules = sharing_rules(pool_id, at)
        dilutes = tuple(plan_dilutions(plan, now.pool_at, gpus_by_type(pool_id)))
    wanted = {**nominal, **{key: _terms_from(plan.after[key], since) for key in plan.keys}}
    try:
        snapshot = read_snapshot(pool_id, number=number, at=at)
        before = decide_round(snapshot)
        after = decide_round(with_quotas(snapshot, wanted, types, rules))
    except Exception as error:
        log.warning("preview.failed", pool=pool_id, exc_info=True)
        failure = f"{type(error).__name__}: {error}"[:300]
        return Impact(number, at, error=failure, plan=plan, dilutes=dilutes)
    rows, counts = share_rows(before, after), (RoundCounts.of(before), RoundCounts.of(after))
    return Impact(number, at, rows, *counts, plan=plan, dilutes=dilutes)


def with_quotas(
    snapshot: Snapshot,
    nominal: Mapping[Key, QuotaTerms | None],
    types: Mapping[int, str],
    rules: SharingRules = NO_RULES,
) -> Snapshot:
    """Return the snapshot with other nominal quotas, scaled to its capacity. Pure.

    The quotas are valid from the round's own `quotas_since`. `rules`: the tenants' own settings for
    lending and borrowing.
    """
    capacity = capacity_by_type(snapshot.nodes)
    by_type: dict[str, list[tuple[int, QuotaTerms]]] = {}
    for (tenant, gpu_type), terms in sorted(nominal.items()):
        if terms is not None:
            by_type.setdefault(types[gpu_type], []).append((tenant, terms))
    entitlements = []
    for name, rows in by_type.items():
        counts = effective_quotas([terms.gpus for _, terms in rows], capacity.get(name, 0))
        entitlements += [
            Entitlement(tenant, name, gpus, Mode(terms.mode), terms.borrow_limit, terms.lend_limit)
            for (tenant, terms), gpus in zip(rows, counts, strict=True)
        ]
    posted = {price.gpu_type: price.price_micro for price in snapshot.prices}
    entitlements = sorted(
        narrowed(entitlements, rules, posted), key=lambda row: (row.tenant, row.gpu_type)
    )
    known = {tenant.id for tenant in snapshot.tenants}
    new = [Tenant(row.tenant) for row in entitlements if row.tenant not in known]
    tenants = {tenant.id: tenant for tenant in (*snapshot.tenants, *new)}
    return msgspec.structs.replace(
        snapshot,
        entitlements=tuple(entitlements),
        tenants=tuple(tenants[key] for key in sorted(tenants)),
        changes=_changes(snapshot, entitlements),
    )


def _changes(snapshot: Snapshot, entitlements: Iterable[Entitlement]) -> tuple[Change, ...]:
    """Return the timed changes, with a step for each effective quota that differs."""
    old = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
    new = {(row.tenant, row.gpu_type): row.gpus for row in entitlements}
    keys = {key for key in (*old, *new) if old.get(key, 0) != new.get(key, 0)}
    at_us = quotas_since(snapshot.service, snapshot.at_us)
    steps = [
        Change(at_us, ChangeKind.QUOTA, key[0], gpus=new.get(key, 0), gpu_types=(key[1],))
        for key in sorted(keys)
    ]
    # Drop the steps to the present quotas.
    kept = [
        change
        for change in snapshot.changes
        if change.kind is not ChangeKind.QUOTA or (change.tenant, change.gpu_types[0]) not in keys
    ]
    return tuple(sorted([*steps, *kept], key=lambda change: change.at_us))


def _nominal(periods: Mapping[Key, Sequence[Period]], at: datetime) -> dict[Key, QuotaTerms]:
    periods_at = {key: period_at(rows, at) for key, rows in periods.items()}
    return {key: period.terms for key, period in periods_at.items() if period is not None}


def _terms_from(periods: Sequence[Period], since: datetime) -> QuotaTerms | None:
    period = period_at(periods, since)
    return period.terms if period else None
