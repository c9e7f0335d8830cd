"""What a sharing policy remembers between rounds, in plain JSON.

- `key`, `shares`, `solve`: the last program and its answer in micro-GPUs, used again while the
  program is the same.
- `at_us`, `rows`, `bound`: per row and GPU type the deviation at that instant and the rate at which
  it has been growing since (ideal - what stood), kept within +-bound.
- `extra`: jobs whose present lease came from what others could not use; it is on nobody's account.
- what `evenshare_core.policies.shared.reservation` remembers.

Deviations go on with time, not with rounds: (ideal - held) x elapsed, in GPUs x leases. A round
that is skipped, because nothing changed, waits or is due, would have changed no rate; so it does
not matter whether it took place
(tests/papers/test_oef_rounds.py::TestSkipping::test_changes_no_deviation).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evenshare_core.domain.decision import Solve
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.rounding import deviation
from evenshare_core.policies.sharing.rows import Row, Shares
from evenshare_core.units import GPU_MICRO


def shares_known(memory: dict[str, Any], key: str) -> Shares | None:
    """Return the shares of the same program, None where it is another."""
    if memory.get("key") != key:
        return None
    solve = memory["solve"]
    return Shares(
        key,
        {(tenant, profile): tuple(micro) for tenant, profile, micro in memory["shares"]},
        None if solve is None else Solve(*solve),
    )


def read_deviations(snapshot: Snapshot, rows: Iterable[Row]) -> None:
    """Bring the deviations of rows that are still there to the round's instant."""
    memory = snapshot.memory
    elapsed_us = max(0, snapshot.at_us - memory.get("at_us", snapshot.at_us))
    bound = memory.get("bound", 0)
    known = {(tenant, profile): told for tenant, profile, told in memory.get("rows", ())}
    for row in rows:
        told = known.get(row.key, {})
        for kind, column in enumerate(row.columns):
            before, rate = told.get(column.name, (0, 0))
            row.deviation[kind] = deviation(before, rate * elapsed_us, 0, bound)


def write_memory(
    snapshot: Snapshot,
    shares: Shares,
    rows: Sequence[Row],
    rates: Sequence[Sequence[int]],
    extra: Iterable[int],
) -> dict[str, Any]:
    """Return the memory of the next round, without reservations."""
    told = []
    for row, of_row in zip(rows, rates, strict=True):
        parts = {
            column.name: [row.deviation[kind], of_row[kind]]
            for kind, column in enumerate(row.columns)
            if row.deviation[kind] or of_row[kind]
        }
        if parts:
            told.append([row.tenant, row.profile, parts])
    solve = shares.solve
    return {
        "at_us": snapshot.at_us,
        "bound": bound_of(rows, snapshot.lease_us),
        "extra": sorted(extra),
        "key": shares.key,
        "rows": told,
        "shares": [[*key, list(micro)] for key, micro in shares.micro.items()],
        "solve": None
        if solve is None
        else [solve.backend, solve.status, solve.objective, solve.fallback],
    }


def bound_of(rows: Iterable[Row], lease_us: int) -> int:
    """The largest gang of any row for one lease: who makes room for it is owed as much."""
    return max((row.largest for row in rows), default=0) * GPU_MICRO * lease_us
