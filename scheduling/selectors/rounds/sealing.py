"""The progress of sealing rounds, and the problems found when they were sealed."""

from __future__ import annotations

from dataclasses import dataclass

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
class ChainFindings:
    """Sealed rounds of a pool with a finding of one kind: their number, and the first of them."""

    pool: str
    kind: str
    count: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class FailedSealing:
    """A pool whose next round cannot be sealed, and why."""

    pool: str
    number: int
    failure: str


def unsealed_pools() -> list[int]:
    """Return the pools with rounds that wait to be sealed. A single query."""
    return [pool_id for (pool_id,) in fetch_rows(_UNSEALED)]


def sealing_problems() -> tuple[list[FailedSealing], list[ChainFindings]]:
    """Return failed sealings, and the findings of sealed rounds. A single query."""
    rows = RoundSealing.objects.order_by("pool_id")
    failures, chained = [], []
    for pool, number, failure, findings in rows.values_list(
        "pool__name", "number", "failure", "findings"
    ):
        if failure:
            failures.append(FailedSealing(pool, number + 1, failure))
        for kind in (BREAK, DAMAGE):
            of_kind = [row for row in findings if row["kind"] == kind]
            if of_kind:
                numbers = {row["number"] for row in of_kind}
                first = of_kind[0]
                chained.append(
                    ChainFindings(pool, kind, len(numbers), first["number"], first["text"])
                )
    return failures, chained
