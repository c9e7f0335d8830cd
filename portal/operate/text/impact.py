"""What a drafted change of quotas would do to the next round, as a sentence and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portal.charts.figures import plural, thousands
from portal.charts.tenants import TenantBadge
from scheduling.services.quota_impact import Impact, ImpactRow

NAMED = 3
MOVED_RHO = 0.005


@dataclass(frozen=True, slots=True)
class ImpactLine:
    """One line of the table."""

    badge: TenantBadge
    row: ImpactRow
    edited: bool

    @property
    def moves(self) -> int:
        """GPUs that it gets more (or fewer)."""
        return self.row.after.got - self.row.before.got


@dataclass(frozen=True, slots=True)
class Preview:
    """The estimate as the page shows it; `digest` is of the draft that it was made from."""

    impact: Impact
    sentence: str
    rows: tuple[ImpactLine, ...]
    digest: str
    cells: int
    unchanged: int


def preview(
    impact: Impact, badges: Mapping[int, TenantBadge], types: Mapping[int, str], digest: str
) -> Preview:
    """Tell the impact: rows that differ or were edited, largest move first."""
    edited = {(key[0], types[key[1]]) for key in impact.plan.keys}
    rows = [
        ImpactLine(badges[row.tenant], row, (row.tenant, row.gpu_type) in edited)
        for row in impact.rows
        if row.tenant in badges
    ]
    shown = [row for row in rows if row.edited or _matters(row.row)]
    shown.sort(key=lambda line: (-abs(line.moves), not line.edited, line.badge.name))
    return Preview(
        impact,
        _sentence(impact, shown),
        tuple(shown),
        digest,
        len(impact.plan.keys),
        len(rows) - len(shown),
    )


def _matters(row: ImpactRow) -> bool:
    """Whether it differs by more than rounding of rho."""
    before, after = row.before, row.after
    if (before.quota, before.deserved, before.got) != (after.quota, after.deserved, after.got):
        return True
    return abs((before.rho or 0) - (after.rho or 0)) >= MOVED_RHO


def _sentence(impact: Impact, rows: Sequence[ImpactLine]) -> str:
    if impact.error:
        return "The next round cannot be estimated."
    if not impact.plan.after:
        return "Nothing is changed yet."
    moved = [row for row in rows if row.moves]
    if moved:
        parts = [_moved(row) for row in moved[:NAMED]]
        if len(moved) > NAMED:
            parts.append(f"{plural(len(moved) - NAMED, 'other tenant')} move as well")
        return _joined(parts)
    deserving = [row for row in rows if row.row.before.deserved != row.row.after.deserved]
    if deserving:
        parts = [
            f"the fair share of {row.badge.name} is {plural(row.row.after.deserved, 'GPU')}"
            f" instead of {thousands(row.row.before.deserved)}"
            for row in deserving[:NAMED]
        ]
        return _joined([*parts, "no GPU moves yet"])
    return "Nobody gets more or fewer GPUs in the next round."


def _moved(row: ImpactLine) -> str:
    than_now = "more" if row.moves > 0 else "fewer"
    return f"{row.badge.name} gets {plural(abs(row.moves), 'GPU')} {than_now}"


def _joined(parts: Sequence[str]) -> str:
    return "; ".join(parts) + "."
