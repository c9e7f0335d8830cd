"""Speeds of job types on GPU types, as measured or declared."""

from collections.abc import Mapping
from fractions import Fraction

from evenshare_core.domain.ids import ProfileId, TenantId
from evenshare_core.domain.values import Value
from evenshare_core.units import ONE_MILLI


class Profile(Value, frozen=True, array_like=True):
    """A job type of a tenant, with its speed on each GPU type.

    `speedups` has (GPU type, thousandths of the speed on the slowest type), sorted by type. A job
    cannot run on a missing type. `priority` divides the tenant's weight among its job types.

    Source: OEF 4.1, 4.2.4.
    """

    id: ProfileId
    tenant: TenantId
    speedups: tuple[tuple[str, int], ...]
    priority: int = 1

    def speed_milli(self, gpu_type: str) -> int:
        """Return thousandths of the slowest type's speed; 0 if this type cannot run the job."""
        return dict(self.speedups).get(gpu_type, 0)


def speedups_normal(speeds: Mapping[str, Fraction]) -> dict[str, int]:
    """Return speeds (all in one unit, each above 0) as thousandths of the slowest, by type.

    Ties round half to even.
    """
    slowest = min(speeds.values(), default=Fraction(1))
    return {name: round(speeds[name] / slowest * ONE_MILLI) for name in sorted(speeds)}
