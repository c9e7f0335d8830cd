"""An operator's changes to pools: policy, time settings, clock, prices."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec
from django.utils.translation import gettext as _
from msgspec import UNSET

from evenshare_core.policies import registry
from evenshare_core.policies.options import Option, OptionError, describe_options
from scheduling.engine.clock import PoolNow, set_clock
from scheduling.models import GpuType, Pool, PoolClock, PriceSetting
from scheduling.requests.pools import (
    LENGTHS,
    NO_SUCH_TYPE,
    SCALE_MAX,
    PoolChangeRequest,
    PriceRequest,
)
from scheduling.selectors.pools.settings import PoolSettings, price_terms, read_options
from scheduling.selectors.stored_texts import STORED
from scheduling.services.executors import change_executor_options
from tenants.audit import Actor, changed, write_audit
from tenants.input.errors import FieldError, FieldErrors, InvalidInputError, invalid
from tenants.input.requests import read_request
from tenants.language import gettext_noop, number
from tenants.operator_transaction import operation

# The book of pools in real time, whose clocks keep scale 1.
REAL_BOOK = "main"
PAUSE_REASON = "operator"


def change_pool(
    *,
    actor: Actor,
    pool_id: int,
    policy: str,
    options: Mapping[str, Any],
    lengths: Mapping[str, int | None],
    visibility: str,
    reason: str = "",
) -> bool:
    """Set a pool's policy with its options, its time settings (`LENGTHS`) and its visibility.

    The next round uses them; leases keep the length of their grant. A change of policy deletes the
    policy's memory; GPU-time sums stay. Return whether anything changed; if not, nothing is
    recorded, not even the reason.

    Raises:
        InvalidInputError: by field; errors of options are on `options.NAME`.
    """
    with operation(actor):
        pool = Pool.objects.select_for_update(no_key=True).get(pk=pool_id)
        errors = FieldErrors()
        check_lengths(lengths, lengths_of(pool), errors)
        if visibility not in Pool.Visibility.values:
            errors.add("visibility", _("Choose a visibility."))
        chosen = complete_options(policy, options, errors)
        errors.raise_any()
        after = {"policy": policy, "options": chosen, "visibility": visibility, **lengths}
        before = {name: getattr(pool, name) for name in after}
        # Options that were not set have their defaults.
        before["options"] = read_options(pool)
        was, becomes = changed(before, after)
        if becomes:
            for name, value in after.items():
                setattr(pool, name, value)
            pool.save(update_fields=list(after))
            subject = f"pool {pool.name}"
            write_audit(actor, "pool.changed", subject, before=was, after=becomes, reason=reason)
    return bool(becomes)


def complete_options(
    policy: str, options: Mapping[str, Any], errors: FieldErrors
) -> dict[str, Any]:
    """Return a policy's options with defaults; add errors to `errors` as `options.NAME`."""
    try:
        chosen = registry.usable_options(policy, dict(options))
        read: dict[str, Any] = msgspec.to_builtins(chosen)
    except registry.UnknownPolicyError:
        errors.add(
            "policy",
            _("Choose one of the policies: {why}.").format(
                why=STORED.shown(registry.missing_text(policy))
            ),
        )
    except OptionError as error:
        field, problem = str(error).split(": ", 1)
        for option in describe_options(registry.policy(policy).options_type):
            if option.name == field and option.advice == problem:
                problem = _advice(option)
        errors.add(f"options.{field}", STORED.shown(problem))
    else:
        return read
    return {}


def _advice(option: Option) -> str:
    """Return `option.advice` in the language of the page."""
    if option.kind == "switch":
        return _("Use true or false.")
    if option.kind == "choice":
        return _("Choose one of {choices}.").format(choices=", ".join(option.choices))
    is_whole = option.kind == "integer"
    if option.least is None or option.most is None:
        return _("Enter a whole number.") if is_whole else _("Enter a number.")
    text = _("Enter a whole number from {least} to {most}.")
    if not is_whole:
        text = _("Enter a number from {least} to {most}.")
    return text.format(least=number(option.least), most=number(option.most))


def lengths_of(pool: Pool) -> dict[str, int]:
    return {name: getattr(pool, name) for name in LENGTHS}


# Texts for a wrong bound of lease lengths, and for the lease length that it bounds.
_SHORTEST = (
    gettext_noop("Enter at most the lease length, {seconds}, or 0 for no bound."),
    gettext_noop("Enter at least {seconds}, or lower the shortest lease length."),
)
_LONGEST = (
    gettext_noop("Enter at least the lease length, {seconds}, or 0 for no bound."),
    gettext_noop("Enter at most {seconds}, or raise the longest lease length."),
)


def check_lengths(
    lengths: Mapping[str, int | None], present: Mapping[str, int], errors: FieldErrors
) -> None:
    """Add the errors of fields that differ from their `present` value to `errors`."""
    for name, (least, most) in LENGTHS.items():
        value = lengths.get(name)
        if value is None or not least <= value <= most:
            errors.add(
                name,
                _("Enter {least} to {most} seconds.").format(
                    least=number(least), most=number(most)
                ),
            )
    lease_s, least_s, most_s = (
        lengths.get(name) or 0 for name in ("lease_s", "least_lease_s", "most_lease_s")
    )
    bounds = (
        ("least_lease_s", least_s, *_SHORTEST, least_s > lease_s),
        ("most_lease_s", most_s, *_LONGEST, 0 < most_s < lease_s),
    )
    for name, value, own, other, is_wrong in bounds:
        if not lease_s or not is_wrong:
            continue
        if value == present.get(name) and lease_s != present.get("lease_s"):
            errors.add("lease_s", _(other).format(seconds=number(value)))
        else:
            errors.add(name, _(own).format(seconds=number(lease_s)))


def set_pool_clock(
    *,
    actor: Actor,
    pool_id: int,
    paused: bool | None = None,
    scale: int | None = None,
    reason: str = "",
) -> PoolNow:
    """Pause or resume a pool's clock, or change its scale; pool time never jumps.

    Raises:
        InvalidInputError: on `scale`.
    """
    with operation(actor):
        pool = Pool.objects.get(pk=pool_id)
        if scale is not None and not 1 <= scale <= SCALE_MAX:
            raise invalid("scale", _("Enter 1 to {most}.").format(most=number(SCALE_MAX)))
        if scale not in (None, 1) and pool.book == REAL_BOOK:
            text = _(
                "The book {book} charges real time: the clock of this pool keeps scale 1."
            ).format(book=REAL_BOOK)
            raise invalid("scale", text)
        clock = PoolClock.objects.select_for_update().get(pool_id=pool_id)
        before = {"scale": clock.scale, "paused": clock.paused}
        now = set_clock(pool_id, scale=scale, paused=paused, reason=PAUSE_REASON)
        was, becomes = changed(before, {"scale": now.scale, "paused": now.paused})
        if becomes:
            action = "clock.changed"
            if "paused" in becomes:
                action = "clock.paused" if now.paused else "clock.resumed"
            subject = f"pool {pool.name}"
            write_audit(actor, action, subject, before=was, after=becomes, reason=reason)
    return now


def set_price(*, actor: Actor, pool_id: int, request: PriceRequest) -> bool:
    """Set the price formula of a GPU type; it applies to the price posted after the next round.

    Return whether anything changed; if not, nothing is recorded.

    Raises:
        InvalidInputError: on `gpu_type`.
    """
    with operation(actor):
        pool = Pool.objects.get(pk=pool_id)
        gpu_type = GpuType.objects.filter(name=request.gpu_type, node__pool_id=pool_id).first()
        if gpu_type is None:
            raise invalid("gpu_type", _(NO_SUCH_TYPE))
        setting = PriceSetting.objects.select_for_update().get_or_create(
            pool_id=pool_id, gpu_type=gpu_type
        )[0]
        before = price_terms(setting)
        setting.base, setting.theta = request.base, request.theta
        if request.surcharge_cap is not None:
            setting.surcharge_cap = request.surcharge_cap
        if request.surcharge_step is not None:
            setting.surcharge_step = request.surcharge_step
        was, becomes = changed(before, price_terms(setting))
        if becomes:
            setting.save(update_fields=list(before))
            subject = f"pool {pool.name}, {request.gpu_type}"
            write_audit(actor, "price.changed", subject, before=was, after=becomes)
    return bool(becomes)


def patch_pool(*, actor: Actor, settings: PoolSettings, request: PoolChangeRequest) -> None:
    """Change some settings of a pool, all or none; `settings` were read under lock.

    Another policy starts with its own defaults.

    Raises:
        InvalidInputError: with the errors of all fields; prices are named like `prices.v100.base`.
    """
    pool = settings.pool
    errors = FieldErrors()
    policy = pool.policy if request.policy is UNSET else request.policy
    kept = settings.options if policy == pool.policy else {}
    wanted = {name: getattr(request, name) for name in (*LENGTHS, "visibility")}
    settled = {
        name: getattr(pool, name) if value is UNSET else value for name, value in wanted.items()
    }
    visibility = settled.pop("visibility")
    with operation(actor):
        errors.extend(
            _errors_of(
                change_pool,
                actor=actor,
                pool_id=pool.pk,
                policy=policy,
                options={**kept, **request.options},
                lengths=settled,
                visibility=visibility,
                reason=request.reason,
            )
        )
        if request.executor_options is not UNSET:
            errors.extend(
                _errors_of(
                    change_executor_options,
                    actor=actor,
                    pool_id=pool.pk,
                    options=request.executor_options,
                    reason=request.reason,
                )
            )
        for gpu_type, terms in request.prices.items():
            place, now = f"prices.{gpu_type}", settings.prices.get(gpu_type)
            if now is None:
                errors.add(place, _(NO_SUCH_TYPE))
                continue
            wrong = _errors_of(_patch_price, actor=actor, pool=pool, now=now, terms=terms)
            errors.extend(one.inside(place) for one in wrong)
        errors.raise_any()


def _patch_price(
    *, actor: Actor, pool: Pool, now: PriceSetting, terms: Mapping[str, Decimal]
) -> None:
    asked = {"gpu_type": now.gpu_type.name, "base": now.base, "theta": now.theta, **terms}
    set_price(actor=actor, pool_id=pool.pk, request=read_request(PriceRequest, asked))


def _errors_of(change: Callable[..., object], **values: Any) -> tuple[FieldError, ...]:
    try:
        change(**values)
    except InvalidInputError as error:
        return error.errors
    return ()
