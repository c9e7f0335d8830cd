"""Drafts of lease events, numbered without gaps when they are written.

Used by `scheduling.engine.apply` alone, which holds the fence's row lock while it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from scheduling.models import LeaseEvent, PoolFence


@dataclass
class EventLog:
    """Collects events of one transaction in the order in which they happened."""

    pool_id: int
    round: int | None
    drafts: list[LeaseEvent] = field(default_factory=list)

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
        self.drafts.append(
            LeaseEvent(
                pool_id=self.pool_id,
                kind=kind,
                at=at,
                round=self.round,
                lease_id=lease,
                job_id=job,
                tenant_id=tenant,
                term=term,
                data=data,
            )
        )

    def write(self, fence: PoolFence) -> None:
        """Number the drafts from the locked fence and insert them."""
        for number, draft in enumerate(self.drafts, start=fence.next_event):
            draft.number = number
        LeaseEvent.objects.bulk_create(self.drafts)
        fence.next_event += len(self.drafts)
        self.drafts = []


def money(amount_micro: int) -> str:
    """Write micro-credits as a decimal string with six places, for an event's data."""
    return f"{amount_micro // 1_000_000}.{amount_micro % 1_000_000:06d}"
