"""The state that a pool's last round stored for its next round, for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from evenshare_core.domain.snapshot import Service
from scheduling.engine.states import keep_state
from scheduling.models import Pool
from scheduling.selectors.rounds.states import LeftState, read_left_state
from tenants.scopes import engine_scope


def left_by(pool: Pool) -> LeftState:
    """Return the state that the pool's last round stored."""
    with engine_scope(pool.pk):
        return read_left_state(pool.pk)


def sums_of(pool: Pool) -> Service:
    """Return the GPU-time sums of the pool's last round."""
    return left_by(pool).sums()


def add_state(pool: Pool, number: int, prices: list[dict[str, Any]]) -> None:
    """Store a state after that of the last round; pages then read it as the newest."""
    left = LeftState(number, datetime.now(UTC), "", "", b"", b"{}", prices, {})
    with engine_scope(pool.pk):
        keep_state(pool.pk, left, left.at.date())
