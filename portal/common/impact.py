"""A tenant in the estimate of a changed round, as the table of estimates shows it."""

from dataclasses import dataclass

from portal.charts.tenants import TenantBadge
from scheduling.services.round_impact import ImpactRow


@dataclass(frozen=True, slots=True)
class ImpactLine:
    """A line of the table."""

    badge: TenantBadge
    row: ImpactRow[int]
    edited: bool

    @property
    def moves(self) -> int:
        """Return how many more GPUs the tenant gets; negative if fewer."""
        return self.row.after.got - self.row.before.got
