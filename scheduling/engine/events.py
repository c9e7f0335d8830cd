"""Drafts of lease events, numbered without gaps when they are written.

Used by `scheduling.engine.apply` alone, which holds the fence's row lock while it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from scheduling.engine.bulk import copy_rows
from scheduling.models import LeaseEvent, PoolFence

_json = msgspec.json.Encoder().encode


@dataclass
class EventLog:
    """Collects events of one transaction in the order in which they happened."""

    pool_id: int
    round: int | None
    posted_at: datetime
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
        """Draft one event."""
        self.drafts.append((kind.value, at, lease, job, tenant, term, _json(data).decode()))

    def write(self, fence: PoolFence) -> None:
        """Number the drafts from the locked fence and insert them."""
        copy_rows(
            "scheduling_leaseevent",
            (
                *("pool_id", "number", "kind", "at", "posted_at", "round"),
                *("lease_id", "job_id", "tenant_id", "term", "data"),
            ),
            (
                (self.pool_id, number, *draft[:2], self.posted_at, self.round, *draft[2:])
                for number, draft in enumerate(self.drafts, start=fence.next_event)
            ),
        )
        fence.next_event += len(self.drafts)
        self.drafts = []
