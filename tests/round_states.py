"""What a pool's last round left for the next one, for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from evenshare_core.domain.snapshot import Service
from scheduling.engine.states import keep_state
from scheduling.models import Pool, PoolFence, Round
from scheduling.selectors.round_states import LeftState, read_left_state
from tenants.scopes import engine_scope


def left_by(pool: Pool) -> LeftState:
    """What the pool's last round left."""
    with engine_scope(pool.pk):
        return read_left_state(pool.pk)


def sums_of(pool: Pool) -> Service:
    """The GPU-time sums of the pool's last round."""
    return left_by(pool).sums()


def count_round(pool: Pool) -> int:
    """Count one more round, as the first thing that a round writes; return its number."""
    fence = PoolFence.objects.get(pool=pool)
    number = fence.next_round
    PoolFence.objects.filter(pool=pool).update(next_round=number + 1)
    return number


def add_state(pool: Pool, number: int, prices: list[dict[str, Any]]) -> None:
    """The state of the newest round, which was counted, as pages read it."""
    left = LeftState(number, datetime.now(UTC), "", "", b"", b"{}", prices, {})
    keep_state(pool.pk, left, left.at.date())


def add_round(pool: Pool, prices: list[dict[str, Any]], **changes: Any) -> Round:
    """One more round, as the last one but for `changes`, that leaves these prices."""
    with engine_scope(pool.pk):
        row = Round.objects.filter(pool=pool).latest("number")
        row.pk, row.number, row.at = None, count_round(pool), row.at + timedelta(days=400)
        for name, value in changes.items():
            setattr(row, name, value)
        row.save(force_insert=True)
        add_state(pool, row.number, prices)
    return row
