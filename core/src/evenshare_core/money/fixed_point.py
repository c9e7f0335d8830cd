"""Fixed-point credits: micro-credits (int) in code, numeric(20,6) in the database.

A float is an error everywhere: it cannot represent 0.1, and a ledger must balance exactly. Units:
credit in micro-credits (`_micro`), prices in micro-credits per GPU-hour, times in microseconds of
pool time (`_us`), GPU-time in GPU-microseconds (`_gpu_us`).
"""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal

from evenshare_core.units import CREDIT_MICRO, HOUR_US

PLACES = Decimal("0.000001")
# of `exp` and `ln`: the digits are the same on every machine
CONTEXT = Context(prec=40, rounding=ROUND_HALF_EVEN)
# The range of numeric(20,6), in micro-credits (exclusive).
LIMIT_MICRO = 10**20


def to_micro(amount: Decimal) -> int:
    """Return a decimal amount of credits as whole micro-credits.

    Raises:
        TypeError: it is not a Decimal, for example a float.
        ValueError: it is not finite, has more than six places, or does not fit numeric(20,6).
    """
    return _fits(sum_to_micro(amount))


def sum_to_micro(amount: Decimal) -> int:
    """Return a sum of amounts as whole micro-credits; it may exceed a database column.

    Raises:
        TypeError: it is not a Decimal, for example a float.
        ValueError: it is not finite, or has more than six places.
    """
    if not isinstance(amount, Decimal):
        raise TypeError(f"credits must be a Decimal, not {type(amount).__name__}")
    if not amount.is_finite():
        raise ValueError("credits must be finite")
    numerator, denominator = amount.as_integer_ratio()
    micro, rest = divmod(numerator * CREDIT_MICRO, denominator)
    if rest:
        raise ValueError(f"{amount} has more than six places")
    return micro


def to_credits(micro: int) -> Decimal:
    """Return whole micro-credits as a decimal with six places.

    Raises:
        TypeError: it is not an int.
        ValueError: it does not fit numeric(20,6).
    """
    # Built from text, because arithmetic would round to the decimal context's precision.
    return Decimal(to_text(micro))


def sum_to_credits(micro: int) -> Decimal:
    """Return a sum of micro-credits as a decimal with six places, however large it is.

    Displayed sums, for example the value of a month's jobs, may exceed a database column.

    Raises:
        TypeError: it is not an int.
    """
    return Decimal(micro_text(micro))


def to_text(micro: int) -> str:
    """Return whole micro-credits as decimal text with six places, for the database.

    Raises:
        TypeError: it is not an int.
        ValueError: it does not fit numeric(20,6).
    """
    return micro_text(_fits(micro))


def term_charge(gpus: int, price_micro: int, held_us: int, carried: int) -> tuple[int, int]:
    """Return a term's charge, and the remainder that the lease's next term carries.

    The charge is gpus x price x held / 3600 s plus the carried remainder of the earlier terms,
    rounded to the nearest micro-credit, halves up. So at the end of each term a lease has been
    charged exactly for its time so far, rounded once. Halves go up so that no term is charged more
    than `worst_case_micro` of its time.

    Remainders are whole 1/3,600,000,000 of a micro-credit (price x microseconds), at least -1/2 and
    below 1/2 of a micro-credit; the first term carries 0.

    Raises:
        ValueError: a factor is negative, or the remainder is out of range.
        TypeError: a factor is not an int.
    """
    _check_factors(gpus, price_micro, held_us)
    if not -HOUR_US <= 2 * carried < HOUR_US:
        raise ValueError("a remainder is at least -1/2 and below 1/2 of a micro-credit")
    due = gpus * price_micro * held_us + carried
    amount = (2 * due + HOUR_US) // (2 * HOUR_US)
    return amount, due - amount * HOUR_US


def charge_micro(gpus: int, price_micro: int, held_us: int) -> int:
    """Return the charge for `gpus` GPUs held for `held_us` at a price per GPU-hour.

    The result is gpus x price x held / 3600 s, rounded once, half to even. This was the charge of a
    term before remainders were carried from term to term (`term_charge`).

    Raises:
        ValueError: a factor is negative.
        TypeError: a factor is not an int.
    """
    _check_factors(gpus, price_micro, held_us)
    return round_half_even(gpus * price_micro * held_us, HOUR_US)


def _check_factors(*factors: int) -> None:
    for factor in factors:
        if not isinstance(factor, int):
            raise TypeError(f"a charge needs ints, not {type(factor).__name__}")
        if factor < 0:
            raise ValueError("a charge needs factors of at least 0")


def worst_case_micro(gpus: int, price_micro: int, lease_us: int) -> int:
    """Return the maximum cost of a term: `gpus` for the whole lease, rounded up.

    Admission requires this amount, rounds reserve it and pages promise it. It is never less than
    `term_charge` of a term of this length, whatever remainder it carries.
    """
    return -(-gpus * price_micro * lease_us // HOUR_US)


def round_half_even(numerator: int, denominator: int) -> int:
    """Return numerator / denominator as the nearest int, ties to even."""
    quotient, rest = divmod(numerator, denominator)
    above_half = 2 * rest - denominator
    if above_half > 0 or (above_half == 0 and quotient % 2 == 1):
        quotient += 1
    return quotient


def largest_remainder(total: int, weights: Sequence[int]) -> list[int]:
    """Split `total` whole units by weight so that the parts sum to it exactly.

    Each part is within one unit of its exact share. Equal remainders go to the earlier index, so
    sort by tenant id first. If all weights are 0, so are all parts.

    Raises:
        ValueError: a weight or the total is negative.
    """
    if total < 0 or (weights and min(weights) < 0):
        raise ValueError("largest_remainder needs a total and weights of at least 0")
    weight_sum = sum(weights)
    if weight_sum == 0:
        return [0] * len(weights)
    exact = [divmod(total * weight, weight_sum) for weight in weights]
    parts = [part for part, _ in exact]
    left = total - sum(parts)
    if left:
        rests = [rest for _, rest in exact]
        # A reversed sort is stable, too: of equal entries, the earlier index comes first.
        ranked = sorted(range(len(rests)), key=rests.__getitem__, reverse=True)
        for index in ranked[:left]:
            parts[index] += 1
    return parts


def micro_text(micro: int) -> str:
    """Return whole micro-credits as decimal text with six places, however large they are.

    Raises:
        TypeError: it is not an int.
    """
    if type(micro) is not int:
        raise TypeError(f"micro-credits must be an int, not {type(micro).__name__}")
    whole, part = divmod(abs(micro), CREDIT_MICRO)
    return f"{'-' if micro < 0 else ''}{whole}.{part:06d}"


def _fits(micro: int) -> int:
    if not -LIMIT_MICRO < micro < LIMIT_MICRO:
        raise ValueError("an amount must fit numeric(20,6)")
    return micro
