"""Requests of operators for pools: settings, prices and the scale of the clock."""

from collections.abc import Mapping
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any, ClassVar, TypeAlias

from django.utils.translation import gettext as _
from msgspec import UNSET, Meta, UnsetType

from evenshare_core.units import COUNT_MAX
from scheduling.requests.executor_options import read_executor_options
from tenants.input import readers
from tenants.input.errors import FieldErrors
from tenants.input.readers import SLUG
from tenants.input.requests import Input, Request, request_fields
from tenants.language import gettext_noop, number
from tenants.requests import Reason, ReasonRequest

SCALE_MAX = 3600
TYPES_MAX, OPTIONS_MAX = 64, 100
DAY_S = 86_400
BASE_MAX, THETA_MAX = Decimal(COUNT_MAX), Decimal(999)
SURCHARGE_CAP_MAX, STEP_LEAST, STEP_MAX = Decimal(999), Decimal("0.1"), Decimal(100)
NO_SUCH_TYPE = gettext_noop("The pool has no GPUs of this type.")
PRICE_FIELDS = ("base", "theta", "surcharge_cap", "surcharge_step")
PRICES_HINT = gettext_noop('Use {"v100": {"base": "1.000000", "theta": "2.000"}}.')


def _read_options(given: Mapping[str, object], errors: FieldErrors) -> dict[str, Any]:
    """Read a policy's options by name; the policy checks their values."""
    value = given.get("options", {})
    if not isinstance(value, dict):
        errors.add("options", _("must be an object"), _('Use {"name": value}.'))
        return {}
    read = {}
    for name, item in list(value.items())[:OPTIONS_MAX]:
        plain = _plain(item)
        if not SLUG.fullmatch(name):
            errors.add(f"options.{ascii(name)[1:-1][:60]}", _("is not the name of an option"))
        elif plain is None:
            errors.add(f"options.{name}", _("must be a string, a number, true or false"))
        else:
            read[name] = plain
    return read


def _read_executor_options(
    given: Mapping[str, object], errors: FieldErrors
) -> dict[str, Any] | None:
    """Read the executor's options; the executor checks their values."""
    if "executor_options" not in given:
        return None
    return read_executor_options(given["executor_options"], errors)


def _plain(value: object) -> Any:
    """Return the value with decimals as floats, or None if options cannot have such a value."""
    if isinstance(value, Decimal):
        return float(value) if isfinite(float(value)) else None
    return value if isinstance(value, str | int | float) else None


OptionValues: TypeAlias = Annotated[
    dict[str, Any], Meta(description="The policy's options."), Input(read=_read_options)
]


def _read_prices(given: Mapping[str, object], errors: FieldErrors) -> dict[str, dict[str, Decimal]]:
    """Read the fields of prices to change; a field that is null stays unchanged."""
    value = given.get("prices", {})
    if not isinstance(value, dict) or len(value) > TYPES_MAX:
        errors.add("prices", _("must be an object of GPU types"), _(PRICES_HINT))
        return {}
    read = {}
    for name, terms in value.items():
        place = f"prices.{ascii(name)[1:-1][:60]}"
        if not SLUG.fullmatch(name) or not isinstance(terms, dict):
            errors.add(
                place,
                _("must be an object with any of {fields}").format(fields=", ".join(PRICE_FIELDS)),
            )
            continue
        for extra in sorted(set(terms) - set(PRICE_FIELDS))[:10]:
            errors.add(f"{place}.{ascii(extra)[1:-1][:20]}", _("is not a field of a price"))
        placed = {f"{place}.{key}": item for key, item in terms.items()}
        amounts = {key: readers.credits(placed, f"{place}.{key}", errors) for key in PRICE_FIELDS}
        read[name] = {key: amount for key, amount in amounts.items() if amount is not None}
    return read


def _read_base(given: Mapping[str, object], errors: FieldErrors) -> Decimal:
    value = given.get("base")
    if isinstance(value, Decimal) and 0 <= value <= BASE_MAX and value == round(value, 6):
        return value
    errors.add(
        "base",
        _("Enter 0 to {most} credits, with at most six decimals.").format(most=number(BASE_MAX)),
    )
    return Decimal(0)


def _read_theta(given: Mapping[str, object], errors: FieldErrors) -> Decimal:
    value = given.get("theta")
    # If theta were 1, the price would always be 0.
    if isinstance(value, Decimal) and 1 < value <= THETA_MAX and value == round(value, 3):
        return value
    errors.add(
        "theta",
        _("Enter more than 1 and at most {most}, with three decimals.").format(most=THETA_MAX),
    )
    return Decimal(0)


def _read_cap(given: Mapping[str, object], errors: FieldErrors) -> Decimal | None:
    value = given.get("surcharge_cap")
    if value is None:
        return None
    if isinstance(value, Decimal) and 0 <= value <= SURCHARGE_CAP_MAX and value == round(value, 3):
        return value
    errors.add(
        "surcharge_cap",
        _("Enter 0 to {most}, with at most three decimals.").format(most=SURCHARGE_CAP_MAX),
    )
    return None


def _read_step(given: Mapping[str, object], errors: FieldErrors) -> Decimal | None:
    value = given.get("surcharge_step")
    if value is None:
        return None
    if isinstance(value, Decimal) and STEP_LEAST <= value <= STEP_MAX and value == round(value, 1):
        return value
    errors.add(
        "surcharge_step",
        _("Enter {least} to {most}, with at most one decimal.").format(
            least=STEP_LEAST, most=STEP_MAX
        ),
    )
    return None


class PriceRequest(Request, frozen=True, kw_only=True):
    """The price of a pool's GPU type: base x (theta^(used / GPUs) - 1) plus a queue surcharge.

    A surcharge field that is null stays unchanged.
    """

    NOUN: ClassVar[str] = "a price"

    gpu_type: Annotated[
        str,
        Meta(pattern=f"^{SLUG.pattern}$", description="The type of the GPUs."),
        Input(complaint=NO_SUCH_TYPE),
    ]
    base: Annotated[
        Decimal,
        Meta(
            description="The scale of the price: a borrowed GPU-hour costs base x (theta - 1)"
            " credits if all GPUs are in use."
        ),
        Input(
            label="Base",
            hint="The scale: with theta 2, the price of a borrowed GPU-hour at full use.",
            read=_read_base,
        ),
    ]
    theta: Annotated[
        Decimal,
        Meta(
            description="How steeply the price rises with use. The larger theta, the cheaper an"
            " idle pool compared with a full one."
        ),
        Input(
            label="Theta",
            hint="How steeply the price rises with use; above 1.",
            read=_read_theta,
        ),
    ]
    surcharge_cap: Annotated[
        Decimal | None,
        Meta(
            description="Maximum surcharge for GPUs queued for borrowing, in multiples of the"
            " base; 0: none. Unchanged if omitted."
        ),
        Input(
            label="Maximum surcharge",
            unit="times the base",
            hint="Added to the price for GPUs queued for borrowing; 0: none.",
            read=_read_cap,
        ),
    ] = None
    surcharge_step: Annotated[
        Decimal | None,
        Meta(
            description="Maximum change of the surcharge per round, in percent of the base."
            " Unchanged if omitted."
        ),
        Input(
            label="Maximum surcharge step",
            unit="% of the base",
            hint="Maximum change per round, up or down.",
            read=_read_step,
        ),
    ] = None


class PoolChangeRequest(Request, frozen=True, kw_only=True):
    """The settings to change; fields that are left out stay unchanged."""

    NOUN: ClassVar[str] = "a pool"
    NULL_IS_ABSENT: ClassVar[bool] = False

    policy: Annotated[
        Annotated[str, Meta(pattern=f"^{SLUG.pattern}$")] | UnsetType,
        Meta(description="The policy that decides its rounds."),
        Input(complaint="must be a name", advice="1 to 63 letters, digits, - and _."),
    ] = UNSET
    options: OptionValues = {}
    visibility: Annotated[
        Annotated[str, Meta(pattern=f"^{SLUG.pattern}$")] | UnsetType,
        Meta(description="How much tenants see of other tenants."),
        Input(
            label="Visibility of other tenants",
            hint="In rounds and on the GPU map.",
            complaint="must be a name",
            advice="1 to 63 letters, digits, - and _.",
        ),
    ] = UNSET
    round_s: Annotated[
        Annotated[int, Meta(ge=1, le=3600)] | UnsetType,
        Meta(description="Interval between rounds, in seconds of wall time."),
        Input(
            label="Round interval",
            unit="s, wall time",
            hint="Time between two scheduling decisions.",
        ),
    ] = UNSET
    lease_s: Annotated[
        Annotated[int, Meta(ge=1, le=30 * DAY_S)] | UnsetType,
        Meta(description="Length of new terms, in seconds of pool time."),
        Input(
            label="Lease length",
            unit="s of the pool",
            hint="How long a job holds its GPUs before a round may give them to other jobs."
            " Running leases keep their length.",
        ),
    ] = UNSET
    least_lease_s: Annotated[
        Annotated[int, Meta(ge=0, le=30 * DAY_S)] | UnsetType,
        Meta(
            description="The shortest term that a policy may choose, in seconds of pool time; 0:"
            " the lease length."
        ),
        Input(
            label="Shortest lease length",
            unit="s of the pool",
            hint="For policies that choose lengths. 0: the lease length.",
        ),
    ] = UNSET
    most_lease_s: Annotated[
        Annotated[int, Meta(ge=0, le=30 * DAY_S)] | UnsetType,
        Meta(
            description="The longest term that a policy may choose, in seconds of pool time; 0: the"
            " lease length."
        ),
        Input(
            label="Longest lease length",
            unit="s of the pool",
            hint="For policies that choose the lengths. 0: the lease length.",
        ),
    ] = UNSET
    grace_s: Annotated[
        Annotated[int, Meta(ge=0, le=DAY_S)] | UnsetType,
        Meta(
            description="Time for a checkpoint before a process is killed, in seconds of pool time."
        ),
        Input(
            label="Grace",
            unit="s of the pool",
            hint="Time for a checkpoint after a lease ends, before the process is killed.",
        ),
    ] = UNSET
    outage_grace_s: Annotated[
        Annotated[int, Meta(ge=0, le=30 * DAY_S)] | UnsetType,
        Meta(
            description="How long jobs may run past their lease while no round is decided, in"
            " seconds of pool time."
        ),
        Input(
            label="Outage grace",
            unit="s of the pool",
            hint="How long jobs may run past their lease while no round is decided.",
        ),
    ] = UNSET
    profiling_s: Annotated[
        Annotated[int, Meta(ge=0, le=3600)] | UnsetType,
        Meta(
            description="Length of profiling runs, in seconds of pool time: a job type of"
            " unknown speed runs on 1 and 2 GPUs while a larger job of it is queued; 0: never."
        ),
        Input(
            label="Profiling",
            unit="s of the pool",
            hint="How long a job type of unknown speed runs on 1 and 2 GPUs while a larger job of"
            " it is queued. 0: never.",
        ),
    ] = UNSET
    idle_warn_s: Annotated[
        Annotated[int, Meta(ge=0, le=30 * DAY_S)] | UnsetType,
        Meta(
            description="How long all GPUs of a lease may idle before its tenant is warned, in"
            " seconds of pool time; 0: never."
        ),
        Input(
            label="Idle GPUs, warning",
            unit="s of the pool",
            hint="How long all GPUs of a lease idle before its tenant is warned. 0: never.",
        ),
    ] = UNSET
    idle_return_s: Annotated[
        Annotated[int, Meta(ge=0, le=30 * DAY_S)] | UnsetType,
        Meta(
            description="A lease whose GPUs have all idled for so long ends at its next expiry, in"
            " seconds of pool time; 0: never."
        ),
        Input(
            label="Idle GPUs, return",
            unit="s of the pool",
            hint="A lease that idles for so long is not renewed, and its job is held. 0: never.",
        ),
    ] = UNSET
    executor_options: Annotated[
        dict[str, Any] | UnsetType,
        Meta(
            description="All options of the pool's executor, by name. Running leases keep their"
            " options."
        ),
        Input(read=_read_executor_options),
    ] = UNSET
    prices: Annotated[
        dict[str, dict[str, Decimal]],
        Meta(
            description="Base, theta, surcharge_cap and surcharge_step by GPU type; omitted"
            " settings stay unchanged."
        ),
        Input(read=_read_prices),
    ] = {}
    reason: Reason = ""


# Bounds of a pool's time settings in seconds; `round_s` is wall time, the others pool time.
LENGTHS: dict[str, tuple[int, int]] = {
    name: (field.least or 0, field.most or 0)
    for name, field in request_fields(PoolChangeRequest).items()
    if name.endswith("_s")
}


class ScaleRequest(ReasonRequest, frozen=True, kw_only=True):
    """Seconds of pool time per second of wall time."""

    scale: Annotated[
        int,
        Meta(ge=1, le=SCALE_MAX, description="Seconds of pool time per second of wall time."),
        Input(label="Scale"),
    ]
