"""Leases and their current terms as a policy sees them."""

from evenshare_core.domain.cluster import Placement, placement_gpus
from evenshare_core.domain.ids import JobId, LeaseId, TenantId
from evenshare_core.domain.values import Value


class Lease(Value, frozen=True, array_like=True):
    """Consecutive terms of a job on the same GPUs, with the current term.

    A round may take the GPUs from `expires_us` on, but not before `protected_until_us`. Between the
    two, a preempting policy may end the lease with notice. `own`, `borrowed` and `price_micro` (per
    GPU-hour) are fixed for the term.
    """

    id: LeaseId
    job: JobId
    tenant: TenantId
    gpu_type: str
    placement: Placement
    started_us: int
    expires_us: int
    term: int
    own: int
    borrowed: int
    price_micro: int
    protected_until_us: int = 0

    @property
    def gpus(self) -> int:
        return placement_gpus(self.placement)

    def ends_by(self, at_us: int) -> bool:
        """Return whether a round at `at_us` may take the lease's GPUs."""
        return self.expires_us <= at_us and self.protected_until_us <= at_us

    def may_be_preempted(self, at_us: int) -> bool:
        """Return whether a round at `at_us` may end the lease before its expiry."""
        return self.protected_until_us <= at_us < self.expires_us
