"""Drafts of lease events, numbered without gaps when they are written.

Only the writers of leases use it: `scheduling.engine.apply` (through `scheduling.engine.write`),
`scheduling.engine.observe` and `scheduling.engine.revoke`; and `scheduling.engine.idle_gpus`, whose
events change no lease. Each holds the lock of the fence's row
while it writes.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from scheduling.engine.bulk import insert_rows
from scheduling.models import LeaseEvent, PoolFence

_json = msgspec.json.Encoder().encode


@dataclass
class EventLog:
    """Collects the events of one transaction in the order in which they happened."""

    pool_id: int
    round: int | None
    posted_at: datetime
    # Events without their numbers, in the order of the columns.
    drafts: list[tuple[Any, ...]] = field(default_factory=list)

    def add(
        self,
        kind: LeaseEvent.Kind,
        at: datetime,
        data: dict[str, Any],
        *,
        lease: int | None = None,
        job: int | None = None,
        tenant: int | None = None,
        term: int | None = None,
    ) -> None:
        self.drafts.append((kind.value, at, lease, job, tenant, term, _json(data).decode()))

    def write(self, fence: PoolFence) -> None:
        """Number the drafts and insert them; the caller has locked the fence with the counter."""
        insert_rows(
            "scheduling_leaseevent",
            (
                *("pool_id", "number", "kind", "at", "posted_at", "round"),
                *("lease_id", "job_id", "tenant_id", "term", "data"),
            ),
            (
                (self.pool_id, number, kind, at, self.posted_at, self.round, *rest)
                for number, (kind, at, *rest) in enumerate(self.drafts, start=fence.next_event)
            ),
        )
        fence.next_event += len(self.drafts)
        self.drafts = []
