"""The shares of tenants in a round, as a viewer may see them."""

from collections.abc import Iterable
from typing import Annotated, Any

from evenshare_core.units import SECOND_US
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.answers import Answer, Hidden, about

_NAMES = {"alloc_gpu_s": "received_gpu_s", "fair_gpu_s": "deserved_gpu_s"}


class RoundShare(Answer, frozen=True, rename=_NAMES):
    """A tenant's share of one GPU type in a round; GPU-time in seconds since accounting started."""

    COMPONENT = "ShareRow"

    tenant: VisibleTenant | None  # None for the sum of the hidden tenants, which has no rho
    gpu_type: str
    quota: int = 0
    swapped: Annotated[int, about("GPUs that trades add to the quota; may be negative.")] = 0
    demand: int = 0
    own: int = 0
    borrowed: int = 0
    alloc_gpu_s: int = 0
    fair_gpu_s: int = 0
    rho_before: float | None = None
    rho_after: float | None = None
    deserved: Hidden[int] = 0
    held_before: Hidden[int] = 0
    got: Hidden[int] = 0

    @property
    def holds(self) -> int:
        """GPUs held after the round."""
        return self.own + self.borrowed


_SUMMED = ("quota", "demand", "deserved", "held_before", "got", "own", "borrowed", "swapped")


def round_shares(rows: Iterable[dict[str, Any]], visibility: Visibility) -> tuple[RoundShare, ...]:
    """Return shares by GPU type in the tenants' order; hidden tenants are one row per type."""
    shown: list[RoundShare] = []
    hidden: dict[str, dict[str, int]] = {}
    for row in rows:
        seen = visibility.of(row["tenant"])
        if seen is None:
            sums = hidden.setdefault(row["gpu_type"], dict.fromkeys(_SUMMED, 0))
            for name in _SUMMED:
                sums[name] += row.get(name, 0)
            continue
        shown.append(
            RoundShare(
                tenant=seen,
                gpu_type=row["gpu_type"],
                alloc_gpu_s=row["alloc_gpu_us"] // SECOND_US,
                fair_gpu_s=row["fair_gpu_us"] // SECOND_US,
                rho_before=row["rho_before"],
                rho_after=row["rho_after"],
                **{name: row.get(name, 0) for name in _SUMMED},
            )
        )
    shown.sort(key=lambda row: (row.gpu_type, row.tenant.number if row.tenant else 0))
    rest = [RoundShare(None, gpu_type, **sums) for gpu_type, sums in sorted(hidden.items())]
    return (*shown, *rest)
