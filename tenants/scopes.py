"""Every query runs in a scope: a transaction that says, to Postgres, on whose behalf.

The settings are local to the transaction, so a pooled connection cannot carry them over. Row
level security will read them; until then they name the actor in the server's log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

IDLE_S, LOCK_S = 20, 10


@contextmanager
def tenant_scope(tenant_id: int) -> Iterator[None]:
    """Run queries on behalf of one tenant."""
    with _scope("evenshare.tenant", str(tenant_id)):
        yield


@contextmanager
def engine_scope(pool_id: int) -> Iterator[None]:
    """Run queries on behalf of a pool's engine, which sees all tenants.

    A process that freezes in here loses its session after `IDLE_S`, so that its row locks do
    not outlive its fence; and nobody waits for a lock longer than `LOCK_S`.
    """
    with _scope("evenshare.pool", str(pool_id)), connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true),"
            " set_config('lock_timeout', %s, true)",
            [f"{IDLE_S}s", f"{LOCK_S}s"],
        )
        yield


@contextmanager
def engine_view(pool_id: int) -> Iterator[None]:
    """Like `engine_scope`, read only and with all rows of one moment.

    Raises:
        RuntimeError: it is called inside a transaction, whose view began earlier.
    """
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SELECT set_config('evenshare.pool', %s, true)", [str(pool_id)])
        yield


@contextmanager
def site_scope() -> Iterator[None]:
    """Run queries on behalf of the site: operators, and what every visitor may see."""
    with _scope("evenshare.site", "on"):
        yield


@contextmanager
def _scope(name: str, value: str) -> Iterator[None]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
        yield
