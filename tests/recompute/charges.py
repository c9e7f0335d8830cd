"""Charges of terms and the income of lenders, implemented from docs/recompute/charges.md.

It imports nothing from the project. Lender 0 is the operator; the other lenders are ids of tenants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

HOUR = 3_600_000_000
OPERATOR = 0
# The GPUs that each lender lends, and for how many microseconds.
Piece = tuple[Mapping[int, int], int]


def charge(borrowed: int, price_micro: int, held_us: int, carried: int) -> tuple[int, int]:
    """Return the charge of a term, and the remainder that the next term carries over."""
    due = borrowed * price_micro * held_us + carried
    micro = (2 * due + HOUR) // (2 * HOUR)
    return micro, due - micro * HOUR


def charged_until(
    held: tuple[int, int], due_us: int, late_us: int, rounds_us: Iterable[int], asked_us: int | None
) -> int:
    """Return until when a term's borrower is charged; `held` is the term's start and end."""
    began_us, ends_us = held
    seen = [at for at in rounds_us if at >= due_us]
    if asked_us is not None:
        seen.append(asked_us)
    if ends_us <= due_us or not seen or min(seen) <= due_us + late_us:
        return ends_us
    return max(due_us, began_us)


def lendable(quota: int, mode: str, lend_limit: int | None, own: int) -> int:
    """Return the GPUs that a tenant lends while running terms use `own` GPUs of its quota."""
    idle = max(0, quota - own)
    if mode == "RESERVE":
        return 0
    return idle if lend_limit is None else min(idle, lend_limit)


def weights(pieces: Iterable[Piece]) -> dict[int, Fraction]:
    """Return the weight of each lender in a term that consists of these pieces."""
    sums: dict[int, Fraction] = {}
    for lent, span_us in pieces:
        total = sum(lent.values())
        parts = {who: Fraction(gpus, total) for who, gpus in lent.items()} if total else {0: 1}
        for who, part in parts.items():
            sums[who] = sums.get(who, Fraction(0)) + part * span_us
    return {who: weight for who, weight in sums.items() if weight}


def split(charge_micro: int, parts: Mapping[int, Fraction]) -> dict[int, int]:
    """Return the income of each lender from a charge."""
    whole = sum(parts.values())
    exact = {who: charge_micro * weight / whole for who, weight in parts.items()}
    earned = {who: int(amount) for who, amount in exact.items()}

    def turn(who: int) -> tuple[Fraction, bool, int]:
        return earned[who] - exact[who], who == OPERATOR, who

    for who in sorted(earned, key=turn)[: charge_micro - sum(earned.values())]:
        earned[who] += 1
    return earned
