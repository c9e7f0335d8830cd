"""The prices that a round posts: eq. (8) of Astraea-online on what is used from then on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from evenshare_core.domain.snapshot import PoolPrice
from evenshare_core.money.pricing import posted_price_micro

_posted_price = lru_cache(maxsize=65_536)(posted_price_micro)


def post_prices(
    rows: Iterable[PoolPrice], used: Mapping[str, int], capacity: Mapping[str, int]
) -> tuple[PoolPrice, ...]:
    """Return the prices of the next round, by GPU type; GPUs in leases and in all, by type."""
    posted = []
    for row in sorted(rows, key=lambda row: row.gpu_type):
        use_now, all_now = used.get(row.gpu_type, 0), capacity.get(row.gpu_type, 0)
        price = _posted_price(row.base_micro, row.theta_milli, use_now, all_now)
        posted.append(
            PoolPrice(row.gpu_type, price, use_now, all_now, row.base_micro, row.theta_milli)
        )
    return tuple(posted)
