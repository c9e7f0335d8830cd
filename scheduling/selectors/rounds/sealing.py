"""The progress of sealing rounds, and the problems found when they were sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scheduling.models import RoundSealing
from tenants.sql import fetch_rows

# A failed sealing is tried again with the next committed round, and hourly.
_UNSEALED = """
SELECT f.pool_id FROM scheduling_poolfence f
LEFT JOIN scheduling_roundsealing s ON s.pool_id = f.pool_id
WHERE f.next_round - 1 > coalesce(s.number, 0) AND coalesce(s.failure, '') = ''
ORDER BY f.pool_id
"""
BREAK, DAMAGE = "break", "damage"


@dataclass(frozen=True, slots=True)
class RoundFindings:
    """Stored or sealed rounds of a pool with a finding: their number, and the first of them."""

    pool: str
    count: int
    number: int
    text: str

    @classmethod
    def of(cls, pool: str, findings: Sequence[Mapping[str, Any]]) -> RoundFindings:
        """Return a pool's findings as stored, of which there is at least one."""
        first = findings[0]
        return cls(pool, len({row["number"] for row in findings}), first["number"], first["text"])


def unsealed_pools() -> list[int]:
    """Return the pools with rounds that wait to be sealed. A single query."""
    return [pool_id for (pool_id,) in fetch_rows(_UNSEALED)]


def sealings() -> list[RoundSealing]:
    """Return the progress of sealing in all pools, with its failures and findings."""
    return list(RoundSealing.objects.select_related("pool").order_by("pool_id"))


def findings_of(row: RoundSealing, kind: str) -> list[RoundFindings]:
    """Return a pool's findings of a kind as a list, which is empty if there are none."""
    of_kind = [finding for finding in row.findings if finding["kind"] == kind]
    return [RoundFindings.of(row.pool.name, of_kind)] if of_kind else []
