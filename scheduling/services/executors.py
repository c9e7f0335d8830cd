"""What an operator says of a pool's executor."""

from __future__ import annotations

from scheduling.models import ExecutorHealth, Pool
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, invalid
from tenants.operator_transaction import operation

NOTHING_FROZEN = "No leases of this pool are held back: nothing is to be accepted."


def accept_losses(*, actor: Actor, pool: Pool, reason: str = "") -> int:
    """Say that the leases which the pool's executor does not list are gone; return how many.

    The next round ends them as lost, and their jobs wait again; one that is listed by then goes
    on. What vanishes later is no part of it.

    Raises:
        InvalidInputError: on `pool`: not so many are missing that nothing is concluded.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        rows = ExecutorHealth.objects.select_for_update()
        row = rows.filter(pool=pool, frozen_since__isnull=False).first()
        if row is None:
            raise invalid("pool", NOTHING_FROZEN, code=CONFLICT)
        row.accepted = sorted(row.missing)
        row.save(update_fields=["accepted"])
        write_audit(
            actor,
            "executor.losses_accepted",
            f"pool {pool.name}",
            after={"leases": len(row.accepted)},
            reason=reason,
        )
    return len(row.accepted)
