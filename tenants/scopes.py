"""Scopes: each query runs in a transaction that names, for Postgres, the tenant or role it serves.

Row level security reads the scope (docs/adr/0135-row-security.md): rows of other tenants are
invisible, and without any scope a query of a tenant's rows fails. The setting is local to the
transaction, so a pooled connection cannot carry it over. A nested scope applies until its end.
"""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from django.db import Error, connection, transaction

IDLE_S, LOCK_S = 20, 10
ONE_STATE = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
SET_SCOPE = "SELECT set_config('evenshare.scope', %s, true)"
SWAP_SCOPE = (
    "SELECT current_setting('evenshare.scope', true), set_config('evenshare.scope', %s, true)"
)
SITE = "site"


def tenant_scope(tenant_id: int) -> AbstractContextManager[None]:
    """Run queries on behalf of one tenant."""
    return tenants_scope([tenant_id])


def tenants_scope(tenant_ids: Collection[int] | None) -> AbstractContextManager[None]:
    """Run queries on behalf of a viewer of these tenants, or of all if None."""
    return site_scope() if tenant_ids is None else _scope(_array(tenant_ids))


@contextmanager
def engine_scope(pool_id: int) -> Iterator[None]:
    """Run queries on behalf of a pool's engine, which sees all tenants.

    A frozen process loses its session after `IDLE_S`, so that its row locks do not outlive its
    fence. No query waits for a lock longer than `LOCK_S`.
    """
    with _scope(f"pool {pool_id:d}"), connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true),"
            " set_config('lock_timeout', %s, true)",
            [f"{IDLE_S}s", f"{LOCK_S}s"],
        )
        yield


@contextmanager
def engine_view(pool_id: int) -> Iterator[None]:
    """Like `engine_scope`, but read-only and with all rows of one moment.

    Raises:
        RuntimeError: a transaction is already open, whose view started earlier.
    """
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute(ONE_STATE)
        cursor.execute(SET_SCOPE, [f"pool {pool_id:d}"])
        yield


def site_scope() -> AbstractContextManager[None]:
    """Run queries on behalf of the site: operators, and data that every visitor may see."""
    return _scope(SITE)


@contextmanager
def site_reading() -> Iterator[None]:
    """Read rows of all tenants in a tenant's scope, without a savepoint; then restore the scope."""
    if not connection.in_atomic_block:
        with site_scope():
            yield
        return
    with connection.cursor() as cursor:
        cursor.execute(SWAP_SCOPE, [SITE])
        outer, _ = cursor.fetchone()
        try:
            yield
        except BaseException:
            # After a database error this fails, too; the end of the transaction then resets the
            # setting.
            with suppress(Error):
                cursor.execute(SET_SCOPE, [outer or ""])
            raise
        cursor.execute(SET_SCOPE, [outer or ""])


@contextmanager
def _scope(value: str) -> Iterator[None]:
    nested = connection.in_atomic_block
    with transaction.atomic(), connection.cursor() as cursor:
        if not nested:
            cursor.execute(SET_SCOPE, [value])
            yield
            return
        cursor.execute(SWAP_SCOPE, [value])
        outer, _ = cursor.fetchone()
        yield
        cursor.execute(SET_SCOPE, [outer or ""])


def _array(ids: Collection[int]) -> str:
    return "{" + ",".join(f"{one:d}" for one in ids) + "}"
