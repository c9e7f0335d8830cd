"""What an operator says of a pool's executor."""

from __future__ import annotations

from typing import NamedTuple

from scheduling.models import ExecutorHealth, Pool
from scheduling.selectors.losses import name_of
from tenants.audit import Actor, write_audit
from tenants.input.errors import CONFLICT, invalid
from tenants.operator_transaction import operation

NOTHING_FROZEN = "No leases of this pool are held back: nothing is to be accepted."
OTHERS_BY_NOW = "Other leases are missing by now, {now} of them: look again, then accept."


class AcceptedLosses(NamedTuple):
    """How many leases the next round ends as lost; `is_new`: they were not accepted before."""

    leases: int
    is_new: bool


def accept_losses(
    *, actor: Actor, pool: Pool, reason: str = "", seen: str | None = None
) -> AcceptedLosses:
    """Say that the leases which the pool's executor does not list are gone.

    The next round ends them as lost, and their jobs wait again; one that is listed by then goes
    on. What vanishes later is no part of it. `seen`: what `scheduling.selectors.losses` called the
    leases that the actor looked at; None: whichever there are. Repeating it changes nothing.

    Raises:
        InvalidInputError: on `pool`: not so many are missing that nothing is concluded, or others
            than were seen.
        PermissionDenied: the actor may not operate.
    """
    with operation(actor):
        rows = ExecutorHealth.objects.select_for_update()
        row = rows.filter(pool=pool, frozen_since__isnull=False).first()
        if row is None:
            raise invalid("pool", NOTHING_FROZEN, code=CONFLICT)
        if seen is not None and seen != name_of(row):
            raise invalid("pool", OTHERS_BY_NOW.format(now=len(row.missing)), code=CONFLICT)
        missing = sorted(row.missing)
        is_new = row.accepted != missing
        if is_new:
            row.accepted = missing
            row.save(update_fields=["accepted"])
            write_audit(
                actor,
                "executor.losses_accepted",
                f"pool {pool.name}",
                after={"leases": len(missing)},
                reason=reason,
            )
    return AcceptedLosses(len(missing), is_new)
