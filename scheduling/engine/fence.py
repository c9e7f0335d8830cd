"""The lock of a pool's writer: one row per pool with a fencing token, on the database's clock.

Taking the fence increments its token if the last holder's time has passed. Every write first locks
the row and checks its token, so a holder whose time expired while it slept writes nothing. Advisory
locks cannot replace it: with a connection pooler they may leak, or be lost.

All functions of the engine that take a `token` may raise `FencedError`.
"""

from django.db import connection

from scheduling.models import PoolFence

HOLD_S = 30


class FencedError(Exception):
    """Another holder has taken the pool; nothing was written."""

    def __init__(self, pool_id: int, token: int) -> None:
        super().__init__(f"pool {pool_id}: fenced, token {token} was superseded")
        self.pool_id = pool_id
        self.token = token


def take_fence(pool_id: int, *, holder: str, hold_s: float = HOLD_S) -> int | None:
    """Take the pool for `hold_s` seconds; return the new token, or None while it is held."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE scheduling_poolfence
            SET token = token + 1, holder = %s,
                until = clock_timestamp() + make_interval(secs => %s)
            WHERE pool_id = (
                SELECT pool_id FROM scheduling_poolfence
                WHERE pool_id = %s
                -- A fence held for longer than any holder may ask for was taken before the clock
                -- was set back, so it is free.
                AND (until < clock_timestamp() OR holder = ''
                     OR until > clock_timestamp() + make_interval(secs => %s))
                -- A holder that is writing has locked the row, and still holds the pool.
                FOR UPDATE SKIP LOCKED)
            RETURNING token
            """,
            [holder, hold_s, pool_id, max(hold_s, HOLD_S)],
        )
        row = cursor.fetchone()
    if row is None:
        return None
    (token,) = row
    return int(token)


def lock_fence(pool_id: int, token: int) -> PoolFence:
    """Lock the fence's row for the running transaction.

    Raises:
        FencedError: another holder has taken the pool.
    """
    fence = PoolFence.objects.select_for_update().get(pool_id=pool_id)
    if fence.token != token:
        raise FencedError(pool_id, token)
    return fence


def release_fence(pool_id: int, token: int) -> None:
    """Release the pool, unless another holder has taken it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scheduling_poolfence SET until = clock_timestamp(), holder = ''"
            " WHERE pool_id = %s AND token = %s",
            [pool_id, token],
        )
