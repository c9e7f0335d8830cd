"""Check of a round's trades of quota, from its records and the snapshot's profiles.

The check shares no code with the trading policies and the engine's invariants: it recomputes each
trade from its amounts. Amounts are whole micro-GPUs and rates have six digits, so an error below a
micro-GPU is rounding.
"""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from evenshare_core.domain.decision import Decision, Trade
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.units import GPU_MICRO

# Half of a rate's last digit.
_HALF = Fraction(1, 2 * GPU_MICRO)


class TradeSide(NamedTuple):
    """The effect of a trade on one party, in GPUs of the slower type, valued by `tenant`."""

    tenant: int
    other: int
    gave: Fraction
    received: Fraction

    @property
    def gain(self) -> Fraction:
        """Value received over value given, such as 1.2 for a fifth more; 0 if nothing was given."""
        return self.received / self.gave if self.gave else Fraction(0)

    @property
    def is_worse(self) -> bool:
        return self.received < self.gave - _rounding(self.gave)


class TradesCheck(NamedTuple):
    """The result of the check.

    `broken` has the tenants whose trades or quotas violate a rule, sorted. `least` is the side that
    gained least from the new trades; None if there are none. `swapped` counts the GPUs that trades
    in force add to quotas.
    """

    checked: int
    broken: tuple[int, ...]
    least: TradeSide | None
    swapped: int


def check_trades(snapshot: Snapshot, decision: Decision) -> TradesCheck:
    """Check the rules of the round's trades, and find the least gain.

    For each trade, the parties differ, the rate lies between both sides' values of a fast GPU, and
    the amounts follow the rate. No side received less than it gave. For new trades, the values of a
    fast GPU agree with the profiles of the party's jobs. Swaps of a type sum to 0, and leave no
    quota below 0.
    """
    broken = set(_broken_swaps(snapshot, decision))
    sides: list[TradeSide] = []
    speedups = _Speedups(snapshot)
    for trade in decision.trades:
        both = trade_sides(trade)
        if _is_wrong(trade) or any(side.is_worse for side in both):
            broken |= {trade.buyer, trade.seller}
        if trade.rate_micro > 0:
            sides += both
            broken |= speedups.contradicted(trade)
    least = min(sides, key=lambda side: (side.gain, side.tenant, side.other), default=None)
    swapped = sum(row.gpus for row in decision.swaps if row.gpus > 0)
    return TradesCheck(len(decision.trades), tuple(sorted(broken)), least, swapped)


def trade_sides(trade: Trade) -> tuple[TradeSide, TradeSide]:
    """Return the value of a trade to its buyer and to its seller, each by its own speeds.

    The values of an undone trade are those of the original trade.
    """
    bought, sold = Fraction(trade.bought_micro, GPU_MICRO), Fraction(trade.sold_micro, GPU_MICRO)
    to_buyer, to_seller = (
        bought * Fraction(rate, GPU_MICRO)
        for rate in (trade.buyer_rate_micro, trade.seller_rate_micro)
    )
    return (
        TradeSide(trade.buyer, trade.seller, gave=sold, received=to_buyer),
        TradeSide(trade.seller, trade.buyer, gave=to_seller, received=sold),
    )


def _rounding(gpus: Fraction) -> Fraction:
    return Fraction(1, GPU_MICRO) + max(gpus, Fraction(1)) * _HALF


def _is_wrong(trade: Trade) -> bool:
    """Return whether the trade exchanges nothing, or its rate differs from the recorded one."""
    rate = abs(trade.rate_micro)
    if trade.buyer == trade.seller or trade.bought_type == trade.sold_type:
        return True
    if min(trade.bought_micro, trade.sold_micro, rate) <= 0:
        return True
    if not trade.seller_rate_micro <= rate <= trade.buyer_rate_micro:
        return True
    bought = Fraction(trade.bought_micro, GPU_MICRO)
    sold = Fraction(trade.sold_micro, GPU_MICRO)
    return abs(sold - bought * Fraction(rate, GPU_MICRO)) > _rounding(bought)


def _broken_swaps(snapshot: Snapshot, decision: Decision) -> Iterable[int]:
    sums: Counter[str] = Counter()
    keys: Counter[tuple[int, str]] = Counter()
    quotas = {(row.tenant, row.gpu_type): row.gpus for row in snapshot.entitlements}
    for row in decision.swaps:
        sums[row.gpu_type] += row.gpus
        keys[row.tenant, row.gpu_type] += 1
    for row in decision.swaps:
        key = (row.tenant, row.gpu_type)
        if sums[row.gpu_type] or keys[key] > 1 or quotas.get(key, 0) + row.gpus < 0:
            yield row.tenant


class _Speedups:
    """The value of a fast GPU to a tenant's jobs in slow GPUs, by their profiles."""

    def __init__(self, snapshot: Snapshot) -> None:
        profiles = {row.id: row for row in snapshot.profiles}
        self._jobs = {
            (job.tenant, job.gpu_types, profiles[job.profile])
            for job in snapshot.jobs
            if job.profile in profiles
        }

    def contradicted(self, trade: Trade) -> set[int]:
        """Return the parties whose profiles contradict the value that the trade records for them.

        If a tenant's profiles differ, the value must lie between the lowest and the highest.
        """
        worths = ((trade.buyer, trade.buyer_rate_micro), (trade.seller, trade.seller_rate_micro))
        wrong = set()
        for tenant, rate_micro in worths:
            rates = self._of(tenant, trade.bought_type, trade.sold_type)
            rate = Fraction(rate_micro, GPU_MICRO)
            if not rates or not min(rates) - _HALF <= rate <= max(rates) + _HALF:
                wrong.add(tenant)
        return wrong

    def _of(self, tenant: int, fast: str, slow: str) -> list[Fraction]:
        return [
            Fraction(profile.speed_milli(fast), profile.speed_milli(slow))
            for owner, accepted, profile in self._jobs
            if owner == tenant
            and (not accepted or {fast, slow} <= set(accepted))
            and profile.speed_milli(slow)
        ]
