"""Automatic trades of quota between tenants whose jobs gain differently from a faster GPU type.

Source: Gandiva_fair (EuroSys 2020), 3.4 and 3.5.

Trades are made once a quantum and for each (fast, slow) pair of types. The pair with the widest gap
of speedups comes first:

- The buyer of fast GPUs is the tenant with the largest speedup among those with slow quota. The
  seller has the smallest speedup among those with fast quota. It must be below the buyer's.
- The price, in slow GPUs per fast one, is the largest speedup among the other tenants with slow
  quota (the second price). If it does not lie between the two speedups, the price is their mean.
- A trade is for one fast GPU. It is for less if the seller has less or could not use more slow
  GPUs.

Undo: as long as any current trade is not justified, the newest trade is undone. A trade is
justified under three conditions. Both tenants have the same speedups as at the trade (within 10 %).
Their quota after trades is at least 0, and their jobs can use it. Neither has less throughput than
with its own quota.

Amounts are whole micro-GPUs, so no quota appears or disappears. Rounding never makes a tenant worse
off than without the trade.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from evenshare_core.domain.decision import Swap, Trade
from evenshare_core.units import GPU_MICRO

# Trades below a hundredth of a GPU are not made.
LEAST_MICRO = GPU_MICRO // 100
# A speedup counts as changed if it differs by more than this percentage from that at the trade.
CHANGED_PERCENT = 10

Holdings = dict[int, dict[str, int]]  # micro-GPUs by tenant and GPU type


class Trader(NamedTuple):
    """A tenant that trades.

    `speeds`: the speeds of its job type, in thousandths by GPU type; its jobs cannot run on a type
    that is missing or 0. `quota`: micro-GPUs by type that it can use and may trade. `usable`:
    micro-GPUs that its jobs could use on all types together. `within`: pairs of (types, micro-GPUs
    that its jobs could use on these types together), for types on which some jobs cannot run.
    """

    tenant: int
    speeds: Mapping[str, int]
    quota: Mapping[str, int]
    usable: int
    within: tuple[tuple[tuple[str, ...], int], ...] = ()

    def speedup(self, fast: str, slow: str) -> Fraction | None:
        """Return the value of a fast GPU in slow GPUs; None if the tenant cannot use both types."""
        quick, base = self.speeds.get(fast, 0), self.speeds.get(slow, 0)
        return Fraction(quick, base) if quick and base else None

    def throughput(self, gpus: Mapping[str, int]) -> int:
        """Return the throughput on these micro-GPUs by type; 10^9 is one GPU at speed 1."""
        return sum(count * self.speeds.get(name, 0) for name, count in gpus.items())

    def rooms(self, gpus: Mapping[str, int]) -> list[tuple[tuple[str, ...], int]]:
        """Return pairs of types and the micro-GPUs that jobs could use in addition to `gpus`.

        The first pair has all types.
        """
        return [
            (names, most - sum(gpus.get(name, 0) for name in names))
            for names, most in ((tuple(self.speeds), self.usable), *self.within)
        ]

    def can_use(self, gpus: Mapping[str, int]) -> bool:
        """Return whether the tenant's jobs could use all of these micro-GPUs, given by type."""
        return all(room >= 0 for _, room in self.rooms(gpus))


def holdings_after(traders: Iterable[Trader], trades: Iterable[Trade]) -> Holdings:
    """Return the holdings of `traders` after trades; holdings of other tenants are not computed."""
    rows = {trader.tenant: dict(trader.quota) for trader in traders}
    for trade in trades:
        for tenant, gpu_type, micro in _moves(trade):
            if tenant in rows:
                rows[tenant][gpu_type] = rows[tenant].get(gpu_type, 0) + micro
    return rows


def _moves(trade: Trade) -> tuple[tuple[int, str, int], ...]:
    bought, sold = trade.bought_micro, trade.sold_micro
    return (
        (trade.buyer, trade.bought_type, bought),
        (trade.seller, trade.bought_type, -bought),
        (trade.buyer, trade.sold_type, -sold),
        (trade.seller, trade.sold_type, sold),
    )


def undo_wrong(
    trades: Sequence[Trade], traders: Mapping[int, Trader], at_us: int
) -> tuple[list[Trade], list[Trade]]:
    """Return the remaining trades, and the undone trades, newest first, with negative rates."""
    standing, undone = list(trades), []
    while standing and not _are_right(standing, traders):
        trade = standing.pop()
        undone.append(replace(trade, rate_micro=-trade.rate_micro, at_us=at_us))
    return standing, undone


def _are_right(trades: Sequence[Trade], traders: Mapping[int, Trader]) -> bool:
    if not all(_is_as_made(trade, traders) for trade in trades):
        return False
    parties = {trade.buyer for trade in trades} | {trade.seller for trade in trades}
    after = holdings_after([traders[tenant] for tenant in sorted(parties)], trades)
    for tenant, gpus in after.items():
        trader = traders[tenant]
        if min(gpus.values()) < 0 or not trader.can_use(gpus):
            return False
        if trader.throughput(gpus) < trader.throughput(trader.quota):
            return False
    return True


def _is_as_made(trade: Trade, traders: Mapping[int, Trader]) -> bool:
    """Return whether both tenants still have their speedups at the time of the trade."""
    for tenant, before in (
        (trade.buyer, trade.buyer_rate_micro),
        (trade.seller, trade.seller_rate_micro),
    ):
        trader = traders.get(tenant)
        now = trader and trader.speedup(trade.bought_type, trade.sold_type)
        if now is None or abs(now * GPU_MICRO - before) * 100 > CHANGED_PERCENT * before:
            return False
    return True


class _Offer(NamedTuple):
    """A possible trade: the buyer, the seller, a fast GPU's value to each, and its price."""

    buyer: Trader
    seller: Trader
    buyer_rate: Fraction
    seller_rate: Fraction
    price: Fraction

    @property
    def gap(self) -> Fraction:
        return self.buyer_rate - self.seller_rate


def new_trades(
    traders: Sequence[Trader], trades: Iterable[Trade], types: Sequence[str], at_us: int
) -> list[Trade]:
    """Return the trades of one quantum, at most one per pair of types.

    `trades`: the current trades. `types`: the GPU types, slowest first.
    """
    traders = sorted(traders)
    after = holdings_after(traders, trades)
    pairs = [(types[fast], types[slow]) for fast in range(len(types)) for slow in range(fast)]
    offers = {pair: offer for pair in pairs if (offer := _offer(traders, after, *pair))}
    made = []
    for pair in sorted(offers, key=lambda pair: (-offers[pair].gap, pair)):
        # recomputed, because trades of earlier pairs changed the holdings
        offer = _offer(traders, after, *pair)
        trade = offer and _trade(offer, after, pair, at_us)
        if trade:
            for tenant, gpu_type, micro in _moves(trade):
                after[tenant][gpu_type] = after[tenant].get(gpu_type, 0) + micro
            made.append(trade)
    return made


def _offer(traders: Sequence[Trader], after: Holdings, fast: str, slow: str) -> _Offer | None:
    rates = {trader.tenant: rate for trader in traders if (rate := trader.speedup(fast, slow))}
    by_tenant = {trader.tenant: trader for trader in traders}
    buyers, sellers = [], []
    for tenant in rates:
        gpus = after[tenant]
        rooms = by_tenant[tenant].rooms(gpus)
        of_fast = [room for names, room in rooms if fast in names and slow not in names]
        of_slow = [room for names, room in rooms if slow in names]
        if min([gpus.get(slow, 0), *of_fast]) >= LEAST_MICRO:
            buyers.append(tenant)
        if min([gpus.get(fast, 0), *of_slow]) >= LEAST_MICRO:
            sellers.append(tenant)
    if not buyers or not sellers:
        return None
    buyer = min(buyers, key=lambda tenant: (-rates[tenant], tenant))
    seller = min(sellers, key=lambda tenant: (rates[tenant], tenant))
    high, low = rates[buyer], rates[seller]
    if low >= high:
        return None
    second = max((rates[one] for one in buyers if one not in (buyer, seller)), default=low - 1)
    price = second if low <= second <= high else (low + high) / 2
    return _Offer(by_tenant[buyer], by_tenant[seller], high, low, price)


def _trade(offer: _Offer, after: Holdings, pair: tuple[str, str], at_us: int) -> Trade | None:
    """Trade at most one fast GPU at the price. Return None if the amount would be too small."""
    fast, slow = pair
    buyer, seller, price = offer.buyer, offer.seller, offer.price
    mine, theirs = after[buyer.tenant], after[seller.tenant]
    bought = min(GPU_MICRO, theirs[fast], int(mine[slow] / price))
    for names, room in buyer.rooms(mine):
        bought = _within(bought, room, (fast in names) - price * (slow in names))
    for names, room in seller.rooms(theirs):
        bought = _within(bought, room, price * (slow in names) - (fast in names))
    sold = int(bought * price)
    if sold * seller.speeds[slow] < bought * seller.speeds[fast]:
        sold += 1  # rounding down would make the seller worse off
    fits = (
        sold <= mine[slow]
        and buyer.can_use({**mine, fast: mine[fast] + bought, slow: mine[slow] - sold})
        and seller.can_use({**theirs, fast: theirs[fast] - bought, slow: theirs[slow] + sold})
    )
    gains = bought * buyer.speeds[fast] >= sold * buyer.speeds[slow]
    if bought < LEAST_MICRO or not fits or not gains:
        return None
    rate, buyer_rate, seller_rate = (
        round(value * GPU_MICRO) for value in (price, offer.buyer_rate, offer.seller_rate)
    )
    return Trade(
        fast, bought, buyer.tenant, slow, sold, seller.tenant, rate, buyer_rate, seller_rate, at_us
    )


def _within(bought: int, room: int, per_bought: Fraction) -> int:
    """Limit `bought` so that `per_bought` times `bought` fits into the room."""
    return min(bought, int(room / per_bought)) if per_bought > 0 else bought


def changes_of(trades: Iterable[Trade]) -> dict[tuple[int, str], int]:
    """Return the net change of quota by (tenant, GPU type), in micro-GPUs."""
    sums: dict[tuple[int, str], int] = {}
    for trade in trades:
        for tenant, gpu_type, micro in _moves(trade):
            sums[tenant, gpu_type] = sums.get((tenant, gpu_type), 0) + micro
    return sums


def whole_swaps(trades: Iterable[Trade]) -> tuple[Swap, ...]:
    """Return the net changes in whole GPUs, which sum to 0 for each type.

    Changes are rounded down, and as many as needed up, largest fractions first. No tenant loses
    more than it holds, since the fraction belongs to a GPU that it keeps.
    """
    by_type: dict[str, list[tuple[int, int]]] = {}
    for (tenant, gpu_type), micro in changes_of(trades).items():
        by_type.setdefault(gpu_type, []).append((tenant, micro))
    swaps = []
    for gpu_type, rows in by_type.items():
        whole = {tenant: micro // GPU_MICRO for tenant, micro in rows}
        missing = -sum(whole.values())
        order = sorted(rows, key=lambda row: (-(row[1] % GPU_MICRO), row[0]))
        for tenant, _ in order[:missing]:
            whole[tenant] += 1
        swaps += [Swap(tenant, gpu_type, gpus) for tenant, gpus in whole.items() if gpus]
    return tuple(sorted(swaps, key=lambda row: (row.tenant, row.gpu_type)))
