"""An operator's change of some of a pool's settings; the others stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from scheduling.selectors.pool_settings import PoolSettings
from scheduling.services.operate import LENGTHS, change_pool, set_price
from tenants.audit import Actor
from tenants.input.errors import FieldError, FieldErrors, InvalidInputError
from tenants.operator_transaction import operation


@dataclass(frozen=True, slots=True)
class PoolPatch:
    """What shall differ; None and what is not named stay. `prices`: type -> (base, theta)."""

    policy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    visibility: str | None = None
    prices: Mapping[str, tuple[Decimal | None, Decimal | None]] = field(default_factory=dict)
    reason: str = ""


def patch_pool(*, actor: Actor, settings: PoolSettings, patch: PoolPatch) -> None:
    """Change some settings of a pool, all or none; `settings` are as read under lock.

    Another policy begins with its own defaults.

    Raises:
        InvalidInputError: by field, with the errors of all of them; prices as `prices.v100.base`.
        PermissionDenied: the actor may not operate.
    """
    pool = settings.pool
    errors = FieldErrors()
    policy = pool.policy if patch.policy is None else patch.policy
    kept = settings.options if policy == pool.policy else {}
    lengths = {name: getattr(pool, name) for name in LENGTHS} | dict(patch.lengths)
    with operation(actor):
        errors.extend(
            _errors_of(
                change_pool,
                actor=actor,
                pool_id=pool.pk,
                policy=policy,
                options={**kept, **patch.options},
                lengths=lengths,
                visibility=pool.visibility if patch.visibility is None else patch.visibility,
                reason=patch.reason,
            )
        )
        for gpu_type, (base, theta) in patch.prices.items():
            now = settings.prices.get(gpu_type)
            found = _errors_of(
                set_price,
                actor=actor,
                pool_id=pool.pk,
                gpu_type=gpu_type,
                base=now.base if base is None and now else base,
                theta=now.theta if theta is None and now else theta,
            )
            # Of a type that the pool has not, there is nothing else to say.
            unknown = [one for one in found if one.field == "gpu_type"]
            place = f"prices.{gpu_type}"
            errors.extend(
                replace(one, field=place) if unknown else one.inside(place)
                for one in unknown or found
            )
        errors.raise_any()


def _errors_of(change: Callable[..., object], **values: Any) -> tuple[FieldError, ...]:
    """Make a change; what was wrong with it."""
    try:
        change(**values)
    except InvalidInputError as error:
        return error.errors
    return ()
