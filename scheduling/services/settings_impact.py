"""A preview of changed settings: a pool's next round, decided twice; nothing is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import structlog

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.snapshot import PoolPrice, Snapshot, lease_bounds_of, with_schema
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.policies import registry
from evenshare_core.policies.base import decide_round
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.engine.snapshots import next_instant, next_number, read_snapshot
from scheduling.models import Pool
from scheduling.selectors.stored_texts import STORED
from scheduling.services.pools import check_lengths, complete_options, lengths_of
from scheduling.services.round_impact import RoundCounts, RoundImpact, share_rows
from tenants.input.errors import FieldErrors
from tenants.scopes import site_scope

log = structlog.get_logger(__name__)


class PriceMove(NamedTuple):
    """The price of a GPU-hour after the round, without and with the change, in credits."""

    gpu_type: str
    before: Decimal
    after: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsImpact(RoundImpact):
    """The impact of other settings.

    `granted_only_after`: jobs that start only under the changed settings. `same`: both rounds have
    the same result, with terms of the same length.
    """

    prices: tuple[PriceMove, ...] = ()
    granted_only_after: int = 0
    same: bool = False


def settings_impact(
    *,
    pool_id: int,
    now: PoolNow,
    policy: str,
    options: Mapping[str, Any],
    lengths: Mapping[str, int | None],
) -> SettingsImpact:
    """Return the next round under another policy, its options and time settings.

    It is decided twice, on one snapshot. The snapshot leaves out nodes that are near maintenance by
    the current lease length. A longer lease may have to avoid more nodes.

    Raises:
        tenants.input.errors.InvalidInputError: by field, as in `change_pool`.
        RuntimeError: it is called inside a transaction.
    """
    errors = FieldErrors()
    with site_scope():
        present = lengths_of(Pool.objects.get(pk=pool_id))
    check_lengths(lengths, present, errors)
    complete = complete_options(policy, options, errors)
    errors.raise_any()
    with site_scope():
        number = next_number(pool_id)
        at = next_instant(pool_id, now)
    try:
        snapshot = read_snapshot(pool_id, number=number, at=at)
    except registry.UnknownPolicyError as error:
        return SettingsImpact(number, at, error=STORED.shown(str(error)))
    changed = with_settings(
        snapshot,
        policy=policy,
        options=complete,
        round_s=(lengths["round_s"] or 0) * now.scale,
        lease_s=lengths["lease_s"] or 0,
        bounds_s=(lengths.get("least_lease_s") or 0, lengths.get("most_lease_s") or 0),
    )
    return _impact(pool_id, snapshot, changed)


def with_settings(
    snapshot: Snapshot,
    *,
    policy: str,
    options: Mapping[str, Any],
    round_s: int,
    lease_s: int,
    bounds_s: tuple[int, int] = (0, 0),
) -> Snapshot:
    """Return the snapshot as the engine would read it under other settings. Pure.

    `round_s`, `lease_s` are pool seconds. `bounds_s`: the shortest and longest term that a policy
    may give; 0 means `lease_s`.
    """
    lease_us, least_us, most_us = (length_s * SECOND_US for length_s in (lease_s, *bounds_s))
    bounds_us = lease_bounds_of(lease_us, least_us, most_us)
    changed = msgspec.structs.replace(
        under_policy(snapshot, policy, options),
        round_us=round_s * SECOND_US,
        lease_us=lease_us,
        lease_bounds_us=bounds_us,
    )
    return with_schema(changed)


def under_policy(snapshot: Snapshot, policy: str, options: Mapping[str, Any]) -> Snapshot:
    """Return the snapshot as the engine would read it under a policy with these options. Pure.

    Another policy or version starts without memory.
    """
    version = registry.policy(policy).version
    same = (policy, version) == (snapshot.policy, snapshot.policy_version)
    return msgspec.structs.replace(
        snapshot,
        policy=policy,
        policy_version=version,
        options=dict(options),
        memory=snapshot.memory if same else {},
    )


def _impact(pool_id: int, snapshot: Snapshot, changed: Snapshot) -> SettingsImpact:
    number, at = snapshot.number, from_us(snapshot.at_us)
    try:
        before, after = decide_round(snapshot), decide_round(changed)
    except Exception as error:
        log.warning("preview.failed", pool=pool_id, exc_info=True)
        return SettingsImpact(number, at, error=f"{type(error).__name__}: {error}"[:300])
    old, new = ({grant.job for grant in decision.grants} for decision in (before, after))
    return SettingsImpact(
        number,
        at,
        rows=share_rows(before, after),
        before=RoundCounts.of(before),
        after=RoundCounts.of(after),
        prices=_price_moves(before.prices, after.prices),
        granted_only_after=len(new - old),
        same=changed.lease_us == snapshot.lease_us and _outcome(before) == _outcome(after),
    )


def _outcome(decision: Decision) -> tuple[object, ...]:
    """Return what a decision changes, without the numbers behind it, for a comparison."""
    granted = {(row.job, row.gpu_type, row.placement, row.own) for row in decision.grants}
    renewed = {(row.lease, row.own) for row in decision.renewals}
    return granted, renewed, {row.lease for row in decision.ends}, decision.prices


def _price_moves(
    before: tuple[PoolPrice, ...], after: tuple[PoolPrice, ...]
) -> tuple[PriceMove, ...]:
    posted = {row.gpu_type: to_credits(row.price_micro) for row in before}
    return tuple(
        PriceMove(row.gpu_type, posted.get(row.gpu_type, price), price)
        for row in after
        for price in (to_credits(row.price_micro),)
    )
