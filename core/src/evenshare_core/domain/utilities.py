"""The value of a job's completion to its tenant: the utility f of Astraea-online, or a bid.

Source: Astraea-online (TC 2022), section 3. With t the time from the arrival to the completion, f
is one of:

    linear: k t + g with k < 0 < g
    convex: (e / t)^kappa

| paper | here | unit |
|---|---|---|
| t | hours from the submission | h |
| g, k | `scale_micro`, `rate_micro` of `linear` | millionths of a credit, of a credit per hour |
| e, kappa | `scale_micro`, `rate_micro` of `convex` | millionths of an hour, millionths |
| - | `scale_micro` of `bid` | micro-credits per GPU-hour of its work, whenever it ends |

Integers and decimals in one fixed context give the same digits on every machine.
"""

import math
import re
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from typing import Any

from evenshare_core.domain.ids import JobId
from evenshare_core.domain.reason_texts import NO_PAIR, NO_PARAMETER, NO_UTILITY_KIND
from evenshare_core.domain.values import Value
from evenshare_core.money.fixed_point import CONTEXT, round_half_even, to_micro
from evenshare_core.units import CREDIT_MICRO, HOUR_US

# The maximum value of a job: a billion credits. A larger amount would be an input error.
MOST_MICRO = 10**9 * CREDIT_MICRO
MOST_POWER_MICRO = 10 * CREDIT_MICRO

# Up to exp(10) the relative error of a float is below 1e-13: the logarithm is at most 64, its power
# at most 10. Both values and both functions round to 2^-53; the bound includes a factor of two in
# reserve.
_FLOAT_EXPONENT = 10.0
_FLOAT_ERROR = 1e-11
_NUMBER = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,6})?", re.ASCII)


class UtilityKind(StrEnum):
    """The shape of a job's value over its completion time. Names are part of the API."""

    LINEAR = "linear"
    CONVEX = "convex"
    BID = "bid"


# The numbers of each kind, in the order (scale, rate).
NUMBERS: Mapping[UtilityKind, tuple[str, ...]] = {
    UtilityKind.LINEAR: ("g", "k"),
    UtilityKind.CONVEX: ("e", "kappa"),
    UtilityKind.BID: ("per_gpu_hour",),
}
FORMS_HINT = (
    'Use {"kind": "linear", "k": "-2", "g": "100"},'
    ' {"kind": "convex", "e": "100", "kappa": "1.5"} or {"kind": "bid", "per_gpu_hour": "0.8"};'
    ' or a text: "linear k=-2 g=100", "convex e=100 kappa=1.5", "bid per_gpu_hour=0.8".'
)


class UtilityError(ValueError):
    """An unusable utility; `field` names the wrong number, empty if the whole utility is wrong."""

    def __init__(self, field: str, reason: str, hint: str = FORMS_HINT) -> None:
        super().__init__(f"{field} {reason}".strip())
        self.field, self.reason, self.hint = field, reason, hint


class Utility(Value, frozen=True, array_like=True):
    """The value of one job; see the module's docstring. `id` is the job's."""

    id: JobId
    kind: UtilityKind
    scale_micro: int
    rate_micro: int = 0

    def value_micro(self, after_us: int, gpu_us: int) -> int:
        """Return the micro-credits of an end `after_us` (at least 1) after the submission.

        `gpu_us` is the work on all its GPUs; only a bid reads it. The result is `MOST_MICRO` at
        most. A linear value may fall below 0, down to `-MOST_MICRO`, so that the amount can be
        stored.
        """
        if self.kind is UtilityKind.BID:
            return min(MOST_MICRO, self.scale_micro * gpu_us // HOUR_US)
        if self.kind is UtilityKind.LINEAR:
            value_micro = self.scale_micro + round_half_even(self.rate_micro * after_us, HOUR_US)
            return max(-MOST_MICRO, value_micro)
        return _convex_micro(self.scale_micro, self.rate_micro, max(1, after_us))


def _convex_micro(scale_micro: int, power_micro: int, after_us: int) -> int:
    """Return (e / t)^kappa in micro-credits: exp(kappa (ln e - ln t)), capped before it overflows.

    Floats are used if their error cannot change the rounded integer, which is nearly always; else
    decimals.
    """
    ratio_float = scale_micro * HOUR_US / (after_us * CREDIT_MICRO)
    power_float = power_micro / CREDIT_MICRO * math.log(ratio_float)
    if power_float < _FLOAT_EXPONENT:
        value_float = math.exp(power_float) * CREDIT_MICRO
        below = math.floor(value_float)
        if abs(value_float - below - 0.5) > _FLOAT_ERROR * (1 + value_float):
            return below + (value_float - below > 0.5)
    return exact_convex_micro(scale_micro, power_micro, after_us)


def exact_convex_micro(scale_micro: int, power_micro: int, after_us: int) -> int:
    """Return (e / t)^kappa in micro-credits, half to even, computed with decimals only.

    e in millionths of an hour, kappa in millionths, t in us; `MOST_MICRO` at most.
    """
    ratio = CONTEXT.divide(Decimal(scale_micro * HOUR_US), Decimal(after_us * CREDIT_MICRO))
    power = CONTEXT.divide(Decimal(power_micro), Decimal(CREDIT_MICRO))
    exponent = CONTEXT.multiply(power, CONTEXT.ln(ratio))
    if exponent > 50:
        return MOST_MICRO
    value = CONTEXT.multiply(CONTEXT.exp(exponent), Decimal(CREDIT_MICRO))
    whole = int(value.to_integral_value(rounding=ROUND_HALF_EVEN, context=CONTEXT))
    return min(MOST_MICRO, whole)


def read_utility(job: int, raw: object) -> Utility:
    """Return the utility in a job's field: a stored object, or its text form.

    Raises:
        UtilityError: the kind is unknown, or a number is missing, unknown or out of bounds.
    """
    given = _text_parts(raw) if isinstance(raw, str) else raw
    if not isinstance(given, Mapping):
        raise UtilityError("", "must be an object or text")
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in UtilityKind.__members__.values():
        raise UtilityError("kind", NO_UTILITY_KIND.format(kinds=", ".join(UtilityKind)))
    names = NUMBERS[UtilityKind(kind)]
    for name in sorted(str(one) for one in given if one != "kind" and one not in names):
        raise UtilityError(name[:40], NO_PARAMETER.format(kind=kind))
    numbers = [_number(given, name) for name in names]
    utility = Utility(job, UtilityKind(kind), *numbers)
    _check(utility)
    return utility


def stated_utility(job: int, raw: object) -> Utility | None:
    """Return the utility in a job's field; None if the field is `None` or an empty object.

    Raises:
        UtilityError: as `read_utility`.
    """
    return None if raw is None or raw == {} else read_utility(job, raw)


def utility_data(utility: Utility) -> dict[str, str]:
    """Return the object in which a utility is stored, with numbers as strings."""
    numbers = (utility.scale_micro, utility.rate_micro)
    names = NUMBERS[utility.kind]
    rows = {name: _plain(micro) for name, micro in zip(names, numbers, strict=False)}
    return {"kind": utility.kind.value, **rows}


def utility_text(utility: Utility) -> str:
    """Return the text form, as in forms, trace files and the command line."""
    rows = utility_data(utility)
    return " ".join([rows.pop("kind"), *(f"{name}={value}" for name, value in rows.items())])


def _text_parts(text: str) -> dict[str, object]:
    kind, *pairs = text.split() or [""]
    parts: dict[str, object] = {"kind": kind}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or name in parts:
            raise UtilityError("", NO_PAIR.format(part=pair[:40]))
        parts[name] = value
    return parts


def _number(given: Mapping[Any, Any], name: str) -> int:
    """Return a number with at most six decimals, in millionths."""
    value = given.get(name)
    if value is None:
        raise UtilityError(name, "is required")
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        exact = Decimal(str(value))
        # Reject an exponent before it is expanded: 1e-999999999 would fill the memory.
        is_short = exact.is_finite() and -7 < exact.adjusted() < 12
        value = format(exact, "f") if is_short else "" if exact else "0"
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise UtilityError(name, "must be a number with at most six decimals")
    return to_micro(Decimal(value))


def _check(utility: Utility) -> None:
    scale, rate = utility.scale_micro, utility.rate_micro
    names = NUMBERS[utility.kind]
    if utility.kind is UtilityKind.LINEAR and rate > 0:
        raise UtilityError("k", "must be 0 or less", "What a job is worth falls with time.")
    if utility.kind is UtilityKind.CONVEX and not 0 < rate <= MOST_POWER_MICRO:
        raise UtilityError("kappa", "must be above 0 and at most 10")
    least = 0 if utility.kind is UtilityKind.BID else 1
    if not least <= scale <= MOST_MICRO or -rate > MOST_MICRO:
        raise UtilityError(
            names[0] if not least <= scale <= MOST_MICRO else names[1],
            "is out of bounds",
            "Enter an amount above 0, at most a billion.",
        )


def _plain(micro: int) -> str:
    sign = "-" if micro < 0 else ""
    whole, part = divmod(abs(micro), CREDIT_MICRO)
    return f"{sign}{whole}.{part:06d}".rstrip("0").rstrip(".")
